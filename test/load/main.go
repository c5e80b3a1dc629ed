package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/scene"
)

func main() {
	o := Options{Progress: os.Stderr}
	var limit time.Duration
	flag.IntVar(&o.Hosts, "hosts", 300, "hosts to remediate at once")
	flag.IntVar(&o.Nodes, "nodes", 700, "Nodes in the cluster; the others stay healthy")
	flag.DurationVar(&o.LifeMin, "min", 3*time.Second, "shortest life of the daemon")
	flag.DurationVar(&o.LifeMax, "max", 8*time.Second, "longest life of the daemon")
	flag.Uint64Var(&o.Seed, "seed", dice.Fresh(), "what the daemon's lives are drawn from")
	flag.DurationVar(&limit, "limit", 30*time.Minute, "give up after this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o Options) error {
	switch {
	case o.Hosts < 1 || o.Hosts > o.Nodes:
		return fmt.Errorf("-hosts %d: from 1 to the %d of -nodes", o.Hosts, o.Nodes)
	case o.LifeMin <= 0 || o.LifeMin >= o.LifeMax:
		return fmt.Errorf("-min %s must be above 0 and below -max %s", o.LifeMin, o.LifeMax)
	}
	dir, err := os.MkdirTemp("", "fenced-load-")
	if err != nil {
		return fmt.Errorf("make a directory for the programs: %w", err)
	}
	defer os.RemoveAll(dir)
	if o.Programs, err = scene.Build(ctx, dir, false); err != nil {
		return err
	}
	r, err := Play(ctx, o)
	if r != nil {
		fmt.Print(r)
	}
	if err == nil && len(r.Violations) > 0 {
		err = errors.New("there are violations")
	}
	return err
}
