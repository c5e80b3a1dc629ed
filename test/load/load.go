package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

type Options struct {
	Hosts, Nodes     int
	LifeMin, LifeMax time.Duration // of the daemon
	MinKills         int           // it is killed at least so often
	Seed             uint64
	// Quick makes the hosts silent for a while already when they hang, and their
	// heartbeats frequent.
	Quick    bool
	Programs scene.Programs
	Progress io.Writer
}

type Result struct {
	Options
	Duration  time.Duration // from the last host that hung until all were done
	Kills     int
	Runs      int
	Attempts  int // power cycles, by the BMCs
	Deletions int
	Resume    time.Duration // from a start until every open run had asked its BMC again
	Resumed   int           // how many runs were open then
	Memory    int64         // largest resident size of the daemon, in KiB
	// Violations are sentences; there must be none.
	Violations []string
}

// String is the report of a run.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hosts remediated at once   %d of %d Nodes, seed %d\n", r.Hosts, r.Nodes, r.Seed)
	fmt.Fprintf(&b, "duration                   %s\n", r.Duration.Round(time.Second))
	fmt.Fprintf(&b, "kill -9                    %d, every %s to %s\n", r.Kills, r.LifeMin, r.LifeMax)
	fmt.Fprintf(&b, "runs, power cycles         %d, %d\n", r.Runs, r.Attempts)
	fmt.Fprintf(&b, "Nodes deleted              %d\n", r.Deletions)
	fmt.Fprintf(&b, "resume of %3d open runs    %s\n", r.Resumed, r.Resume.Round(10*time.Millisecond))
	fmt.Fprintf(&b, "largest resident memory    %d MiB\n", r.Memory>>10)
	fmt.Fprintf(&b, "violations                 %d\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	return b.String()
}

const poll = 500 * time.Millisecond // between two looks

// play is one run under way.
type play struct {
	Options
	s       *scene.Scene
	client  *api.Client
	targets []*scene.Worker
	others  []*scene.Worker
	result  *Result
}

// Play does it all. The result may be there beside an error, as far as it goes. The logs
// are kept if something is wrong.
func Play(ctx context.Context, o Options) (_ *Result, err error) {
	p := &play{Options: o, result: &Result{Options: o}}
	p.tell("setting the stage: %d Nodes with a BMC each", o.Nodes)
	if p.s, err = scene.New(ctx, p.stage()); err != nil {
		return nil, err
	}
	defer p.s.Stop()
	defer func() {
		if err != nil || len(p.result.Violations) > 0 {
			p.tell("the logs are kept in %s; the end of fenced's:\n%s", p.s.KeepLogs(), p.s.LogTail(50))
		}
	}()
	p.client = api.New(p.s.Socket())
	p.targets, p.others = p.s.Workers[:o.Hosts], p.s.Workers[o.Hosts:]
	k, err := p.startKiller(ctx)
	if err != nil {
		return nil, err
	}
	p.tell("hanging %d hosts", o.Hosts)
	if err := p.hang(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	err = k.rage(ctx, p.allBack)
	p.result.Duration = time.Since(began)
	if err != nil {
		p.result.Violations = append(p.result.Violations, p.unfinished(context.WithoutCancel(ctx))...)
		return p.result, err
	}
	if err := k.stop(ctx); err != nil {
		return p.result, err
	}
	return p.result, p.judge(ctx)
}

func (p *play) tell(format string, args ...any) { fmt.Fprintf(p.Progress, format+"\n", args...) }

// stage is a cluster in which all hosts may be remediated at once.
func (p *play) stage() scene.Options {
	o := scene.Options{
		Programs: p.Programs, Progress: p.Progress, GracePeriod: 40 * time.Second, LeaseEvery: 10 * time.Second,
		BMCSessions: 16, // each kill leaves one behind for a minute, which is not waited for here
		Checks:      []rig.Check{scene.Metal("2s")},
		Set: []string{
			fmt.Sprintf("guards.maxInFlight=%d", p.Nodes), fmt.Sprintf("guards.maxInFlightTotal=%d", p.Nodes), "guards.startsPerHour=0",
			"guards.viewMaxAge=60s", "guards.clockSkewMax=30s",
			"power.offReadSpacing=1s", "power.offDeadline=20m", "power.onDeadline=20m", "power.apiTimeout=20m", "power.nodeReadyTimeout=20m",
			"power.restoreTimeout=20m", "power.podsGoneTimeout=5s", "power.sessionTimeout=0s",
		},
	}
	o.Checks[0].MaxUnhealthy = "100%"
	if p.Quick {
		o.GracePeriod, o.LeaseEvery = 8*time.Second, 2*time.Second
	}
	for i := range p.Nodes {
		o.Workers = append(o.Workers, scene.Spec{Name: fmt.Sprintf("node-%03d", i), Protocol: scene.IPMI})
	}
	return o
}

// hang freezes all targets. In a quick run their Leases are as old as those of hosts
// that hung two minutes ago.
func (p *play) hang(ctx context.Context) error {
	for _, w := range p.targets {
		w.Kubelet.Hang()
	}
	if !p.Quick {
		return nil
	}
	for _, w := range p.targets {
		if err := p.s.Cluster.AgeLease(ctx, w.Name, 2*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// allBack says whether no run is open and every target has another Node than before.
func (p *play) allBack(ctx context.Context, st wire.Status) bool {
	if len(st.Runs) > 0 {
		return false
	}
	nodes, err := p.nodes(ctx)
	if err != nil {
		return false // the next round asks again
	}
	for _, w := range p.targets {
		if n, ok := nodes[w.Name]; !ok || n.UID == w.Registered.UID || !scene.IsReady(&n) {
			return false
		}
	}
	return true
}

func (p *play) nodes(ctx context.Context) (map[string]corev1.Node, error) {
	list, err := p.s.Cluster.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	nodes := map[string]corev1.Node{}
	for _, n := range list.Items {
		nodes[n.Name] = n
	}
	return nodes, nil
}

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
