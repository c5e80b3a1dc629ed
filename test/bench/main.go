// Command bench measures the built fenced against a real API server and etcd on
// loopback, under a steady stream of Node status updates, and prints the figures
// beside the bounds of docs/performance.md and beside a controller that judges
// everything again at every event.
//
//	bench            set up a fleet, measure, print the tables (make bench)
//	bench power      what making certain that a host is off costs, by fenced and
//	                 by others, and a thousand BMCs at once (package power)
//	bench table      read `go test -bench` output on stdin, print it as tables
//	bench rejudge    the controller to compare with; bench starts it itself
//
// The files in the order of a measurement: bench.go runs it, fleet.go, node.go
// and machine.go are what stands in the cluster, metal.go the BMCs, daemon.go
// the fenced under test, load.go the updates, usage.go, share.go, latency.go and many.go
// the measurements, untouched.go the check that nothing else was acted on,
// rejudge.go and peer.go the comparison, print.go the tables.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/fenced/fenced/test/bench/power"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	klog.SetLogger(klog.Logger{}) // client-go's; what matters comes as an error
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	switch word {
	case "table":
		return table(os.Stdin, os.Stdout)
	case rejudgeWord:
		return rejudge(ctx, args[1:], os.Stdin, os.Stdout)
	case power.WorkerWord:
		return power.Serve(ctx, os.Stdin, os.Stdout)
	case "power":
		return measurePower(ctx, args[1:])
	}
	o := Options{Settle: 5 * time.Second, Progress: os.Stderr}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.Nodes, "nodes", 5000, "Nodes with a Machine each")
	f.IntVar(&o.Rate, "rate", 100, "Node status updates per second")
	f.DurationVar(&o.Window, "window", 30*time.Second, "how long CPU is measured")
	f.IntVar(&o.Samples, "samples", 20, "hosts, and cloud Machines, that are made to fail one after another")
	f.IntVar(&o.Together, "together", 100, "cloud Machines that are made to fail at the same moment")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	r, err := Measure(ctx, o)
	if err != nil {
		return err
	}
	return r.Print(os.Stdout)
}

// measurePower is an error, after the tables, when a bound is broken.
func measurePower(ctx context.Context, args []string) error {
	o := power.Options{Progress: os.Stderr}
	f := flag.NewFlagSet("bench power", flag.ContinueOnError)
	f.IntVar(&o.Samples, "samples", 5, "of each operation on loopback")
	f.IntVar(&o.BMCs, "bmcs", 1000, "BMCs that are asked at once")
	if err := f.Parse(args); err != nil {
		return err
	}
	r, err := power.Measure(ctx, o)
	if err != nil {
		return err
	}
	fmt.Println(machine())
	if err := r.Print(os.Stdout); err != nil {
		return err
	}
	return r.Check()
}
