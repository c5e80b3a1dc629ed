package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// Options size a measurement.
type Options struct {
	Nodes   int
	Rate    int // Node status updates per second
	Window  time.Duration
	Samples int // of each kind of target
	// Together is how many more cloud Machines fail at the same moment.
	Together int
	Settle   time.Duration // between a start and a measurement
	// Progress is told what happens; it takes minutes.
	Progress io.Writer
}

// Result is what was measured.
type Result struct {
	Options
	// Start is from the start of the process to the first judgement of all Nodes.
	Start time.Duration
	// Metal is from a deadline to the first datagram at the BMC, Cloud from a
	// deadline to the arrival of the Machine's DELETE at the API server.
	Metal, Cloud []time.Duration
	Many         Many
	Fenced, Peer Usage
	// Judgements is how often a second the peer judged everything.
	Judgements float64
}

// measureTime bounds all of it, once the control plane runs.
const measureTime = 15 * time.Minute

// bench is one measurement while it runs.
type bench struct {
	Options
	dir      string
	programs scene.Programs
	cluster  *rig.ControlPlane
	fleet    *fleet
	metal    *metal
	load     *load
	result   Result
}

// Measure sets up a control plane with a fleet, measures, and takes everything
// down again. It is an error when fenced acted on anything but the targets.
func Measure(ctx context.Context, o Options) (r *Result, err error) {
	if o.Samples < 1 || o.Rate < 1 || o.Together < 1 || o.Nodes < 2*o.Samples+o.Together+kubelets || o.Window < time.Second {
		return nil, fmt.Errorf("at least one sample, one Machine that fails together with others, one update a second, a window of 1s, and %d Nodes more than targets are needed", kubelets)
	}
	b := &bench{Options: o, result: Result{Options: o}}
	if b.dir, err = os.MkdirTemp("", "fenced-bench-"); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		if err == nil {
			_ = os.RemoveAll(b.dir) // left-overs in the temporary directory harm nobody
			return
		}
		err = fmt.Errorf("%w\nthe logs are kept in %s", err, b.dir)
	}()
	b.tell("building fenced")
	if b.programs, err = scene.Build(ctx, b.dir, false); err != nil {
		return nil, err
	}
	b.tell("starting etcd and kube-apiserver")
	if b.cluster, err = rig.Start(ctx, rig.Options{Progress: o.Progress, NoManager: true, Dir: b.dir}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.cluster.KeepLogs()
		}
		b.cluster.Stop()
	}()
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	defer b.metal.stop()
	if err := b.underLoad(ctx); err != nil {
		return nil, errors.Join(err, b.cluster.Died())
	}
	return &b.result, b.cluster.Died()
}

// prepare creates what stands in the cluster, and the BMCs.
func (b *bench) prepare(ctx context.Context) (err error) {
	b.tell("creating %d Nodes and Machines", b.Nodes)
	if b.metal, err = startMetal(ctx, b.Samples); err != nil {
		return err
	}
	if b.fleet, err = createFleet(ctx, b.cluster, b.Options, b.metal); err != nil {
		b.metal.stop()
		return err
	}
	return nil
}

// underLoad measures while the load runs; a load that fails ends it.
func (b *bench) underLoad(ctx context.Context) error {
	b.load = &load{client: b.fleet.client, nodes: b.fleet.bystanders, rate: b.Rate}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.load.run(ctx) })
	g.Go(func() error {
		defer cancel() // ends the load
		if err := b.measureFenced(ctx); err != nil {
			return err
		}
		return b.measurePeer(ctx)
	})
	return g.Wait()
}

func (b *bench) measureFenced(ctx context.Context) error {
	b.tell("starting fenced under %d updates/s", b.Rate)
	d, err := b.startDaemon(ctx)
	if err != nil {
		return err
	}
	defer d.stop()
	b.result.Start = d.took
	if b.result.Fenced, err = b.usage(ctx, d.process); err != nil {
		return err
	}
	if err := b.together(ctx, d.process); err != nil {
		return fmt.Errorf("%w\nthe end of fenced's log:\n%s", err, d.logTail())
	}
	b.tell("failing %d hosts and %d cloud Machines, one after another", b.Samples, b.Samples)
	if err := b.latencies(ctx); err != nil {
		return fmt.Errorf("%w\nthe end of fenced's log:\n%s", err, d.logTail())
	}
	if err := b.untouched(ctx); err != nil {
		return err
	}
	peak, err := d.peak() // with the runs in it
	b.result.Fenced.Peak = max(b.result.Fenced.Peak, peak)
	return err
}

// usage measures what a process costs while nothing happens but the load.
func (b *bench) usage(ctx context.Context, p *process) (Usage, error) {
	if !sleep(ctx, b.Settle) {
		return Usage{}, ctx.Err()
	}
	b.tell("measuring %s for %s", p.name, b.Window)
	return p.usage(ctx, b.Window, &b.load.done)
}

func (b *bench) tell(format string, args ...any) {
	fmt.Fprintf(b.Progress, "bench: "+format+"\n", args...)
}

// sleep is false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// perSecond is the rate at which a counter moved.
func perSecond(moved int64, in time.Duration) float64 { return float64(moved) / in.Seconds() }

// counter is read by others while it moves.
type counter = atomic.Int64
