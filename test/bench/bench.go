package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
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
	// Rounds is how often they fail, for fenced and for OpenShift's controller; with Busy also while every processor has other work.
	Rounds int
	Busy   bool
	// Also are other builds of fenced that are measured in these rounds.
	Also []string
	// Where measures only where the time of fenced goes meanwhile.
	Where  bool
	Settle time.Duration // between a start and a measurement
	// Progress is told what happens; it takes minutes.
	Progress io.Writer
}

type Result struct {
	Options
	// Start is from the start of the process to the first judgement of all Nodes.
	Start time.Duration
	// Metal is from a deadline to the first datagram at the BMC, Cloud from a
	// deadline to the arrival of the Machine's DELETE at the API server.
	Metal, Cloud []time.Duration
	Many         Many
	WhereTo      *Where // nil unless it is asked for
	// Fenced and Controller are fenced and OpenShift's controller.
	Fenced, Controller Usage
}

// measureTime bounds all of it, once the control plane runs.
const measureTime = 15 * time.Minute

// bench is one measurement while it runs.
type bench struct {
	Options
	dir      string
	programs scene.Programs
	// controller is the program of OpenShift's controller.
	controller string
	cluster    *rig.ControlPlane
	fleet      *fleet
	metal      *metal
	load       *load
	result     Result
}

// Measure sets up a control plane with a fleet, measures, and takes everything
// down again. It is an error when fenced acted on anything but the targets.
func Measure(ctx context.Context, o Options) (r *Result, err error) {
	if o.Samples < 1 || o.Rate < 1 || o.Together < 1 || o.Rounds < 1 || o.Nodes < 2*o.Samples+o.Together+kubelets || o.Window < time.Second {
		return nil, fmt.Errorf("at least one sample, one Machine that fails together with others, one round of that, one update a second, a window of 1s, and %d Nodes more than targets are needed", kubelets)
	}
	b := &bench{Options: o, result: Result{Options: o}}
	if b.dir, err = os.MkdirTemp("", "fenced-bench-"); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer keepLogs(b.dir, &err)
	b.tell("building fenced")
	if b.programs, err = scene.Build(ctx, b.dir, false); err != nil {
		return nil, err
	}
	options := rig.Options{Progress: o.Progress, NoManager: true, Dir: b.dir}
	if o.Where {
		options.AuditReads = rig.FencedUser
	} else if b.controller, err = rig.HealthCheckController(ctx, o.Progress); err != nil {
		return nil, err
	}
	b.tell("starting etcd and kube-apiserver")
	if b.cluster, err = rig.Start(ctx, options); err != nil {
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

// keepLogs removes the directory of a measurement, or says after its error that the logs are there.
func keepLogs(dir string, err *error) {
	if *err == nil {
		_ = os.RemoveAll(dir) // left-overs in the temporary directory harm nobody
		return
	}
	*err = fmt.Errorf("%w\nthe logs are kept in %s", *err, dir)
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
	b.load = loadOn(b.fleet.client, b.fleet.bystanders, b.Rate)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.load.run(ctx) })
	g.Go(func() error {
		defer cancel() // ends the load
		if b.Options.Where {
			w, err := b.where(ctx)
			b.result.WhereTo = w
			return err
		}
		for _, measure := range []func(context.Context) error{b.rounds, b.measureFenced, b.measureController} {
			if err := measure(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

func (b *bench) measureFenced(ctx context.Context) error {
	b.tell("starting fenced under %d updates/s", b.Rate)
	d, err := b.startDaemon(ctx, b.programs.Fenced)
	if err != nil {
		return err
	}
	defer d.stop()
	b.result.Start = d.took
	if b.result.Fenced, err = b.usage(ctx, d.process); err != nil {
		return err
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

// measureController measures what OpenShift's controller costs under the same load.
func (b *bench) measureController(ctx context.Context) error {
	p, err := b.startController(ctx)
	if err != nil {
		return err
	}
	defer p.stop()
	b.result.Controller, err = b.usage(ctx, p)
	return err
}

// usage measures what a process costs while nothing happens but the load.
func (b *bench) usage(ctx context.Context, p *process) (Usage, error) {
	if !rig.Sleep(ctx, b.Settle) {
		return Usage{}, ctx.Err()
	}
	b.tell("measuring %s for %s", p.name, b.Window)
	return p.usage(ctx, b.Window, &b.load.done)
}

func (b *bench) tell(format string, args ...any) {
	fmt.Fprintf(b.Progress, "bench: "+format+"\n", args...)
}

// perSecond is the rate at which a counter moved.
func perSecond(moved int64, in time.Duration) float64 { return float64(moved) / in.Seconds() }

// counter is read by others while it moves.
type counter = atomic.Int64

// The account of every BMC.
const (
	user     = "fence"
	password = "not-a-secret"
)

const (
	startTime   = 20 * time.Minute      // from the start of a program until it has judged, half a million Nodes on the processors of their API
	startPoll   = 20 * time.Millisecond // also how exactly the start is known
	clusterName = "bench"
)

// What is not here has its default: also the guards that nothing here meets.
const configuration = `clusters:
  - {name: %[1]s, kubeconfig: %[2]s, mode: evaluate}
hosts: hosts.d
policies: policies.d
state: {path: state.db}
control: {socket: %[3]s}
metrics: {listen: ""}
sweep: {interval: 0s} # what is asked of a BMC here is asked by a run
guards:
  quietPeriod: 0s
  maxInFlight: %[4]d
  maxInFlightTotal: %[4]d
  maxInFlightPercent: 100
  startsPerHour: 0
  maxDeletions: %[4]d
  deletionsPerHour: 0
`

// daemon is the fenced under test.
type daemon struct {
	*process
	dir   string
	began time.Time
	took  time.Duration // until all Nodes were judged
}

// startDaemon starts the fenced that ships, without any state, and waits until it has judged the
// whole fleet.
func (b *bench) startDaemon(ctx context.Context, program string) (*daemon, error) {
	dir, err := os.MkdirTemp(b.dir, "fenced-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for fenced: %w", err)
	}
	if err := b.writeConfig(dir); err != nil {
		return nil, err
	}
	began := time.Now()
	args := []string{"--config", filepath.Join(dir, "fenced.yaml")}
	if b.Options.Where {
		program, args = traced(dir, program, args...)
	}
	p, err := startProcess(dir, "fenced", program, args...)
	if err != nil {
		return nil, err
	}
	if err := p.awaitStatus(ctx, filepath.Join(dir, "fenced.sock"), b.judged); err != nil {
		p.stop()
		return nil, err
	}
	return &daemon{process: p, dir: dir, began: began, took: time.Since(began)}, nil
}

// awaitStatus polls the control socket of a fenced until ok is nil.
func (p *process) awaitStatus(ctx context.Context, socket string, ok func(wire.Status) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	client := api.New(socket)
	defer client.End()
	last := errors.New("it has not answered")
	for rig.Sleep(ctx, startPoll) {
		if p.ended() {
			return fmt.Errorf("start fenced: it ended\nthe end of its log:\n%s", p.logTail())
		}
		reply, err := client.Status(ctx)
		if err == nil {
			err = ok(reply.Value)
		}
		if err == nil {
			return nil
		}
		last = err
	}
	return fmt.Errorf("wait until fenced has judged all Nodes: %w\nthe end of its log:\n%s", last, p.logTail())
}

// judged is nil when fenced is armed, sees the cluster and counts all targets.
func (b *bench) judged(s wire.Status) error {
	if !s.Armed || len(s.Clusters) != 1 || s.Clusters[0].Problem != "" {
		return fmt.Errorf("not armed and watching: %+v", s)
	}
	healthy := healthyTargets(s)
	if nodes := s.Clusters[0].Nodes; nodes != b.Nodes || healthy != b.Nodes {
		return fmt.Errorf("%d Nodes seen, %d of %d targets healthy", nodes, healthy, b.Nodes)
	}
	return nil
}

func healthyTargets(s wire.Status) (n int) {
	for _, c := range s.Clusters {
		for _, check := range c.Checks {
			n += check.Healthy
		}
	}
	return n
}

// writeConfig writes fenced.yaml, hosts.d with a BMC for every metal host, and
// an empty policies.d.
func (b *bench) writeConfig(to string) error {
	kubeconfig, err := b.cluster.Kubeconfig(rig.FencedUser)
	if err != nil {
		return err
	}
	hosts, err := yaml.Marshal(map[string]any{"hosts": b.hosts(to)})
	if err != nil {
		return fmt.Errorf("encode hosts.d: %w", err)
	}
	text := fmt.Sprintf(configuration, clusterName, kubeconfig, filepath.Join(to, "fenced.sock"), 2*b.Samples+b.Together+1)
	if err := os.Mkdir(filepath.Join(to, "policies.d"), 0o700); err != nil {
		return fmt.Errorf("make policies.d: %w", err)
	}
	return rig.WriteFiles(to, map[string][]byte{"fenced.yaml": []byte(text), "hosts.d/hosts.yaml": hosts, "password": []byte(password)})
}

func (b *bench) hosts(dir string) []any {
	var hosts []any
	add := func(node, address string) {
		hosts = append(hosts, map[string]any{
			"node": node, "bmc": map[string]any{"address": address, "username": user, "passwordFile": filepath.Join(dir, "password")},
		})
	}
	for i, n := range b.fleet.metal {
		add(n.Name, "ipmi://"+b.metal.targets[i].relay.Addr())
	}
	for i, name := range b.fleet.others {
		add(name, b.metal.decoy.address(i))
	}
	return hosts
}

// The test has longer times, for a machine that others keep busy.
var (
	// Half a second apart, because conditions begin at whole seconds: so two
	// decisions of one round do not meet.
	metalTimeout = 3 * time.Second
	cloudTimeout = 3500 * time.Millisecond
	// patience is how long after its deadline a target may be waited for.
	patience = 20 * time.Second
)

const (
	// warning is how long before its deadline a failure must be in the cluster.
	warning = 500 * time.Millisecond
	// stride is from one failure to the next.
	stride = 2 * time.Second
)

// failure is a target that was made to fail.
type failure struct {
	name     string
	deadline time.Time // when its check's timeout was over
}

// latencies fails one host and one cloud Machine after the other, and measures
// from their deadlines to what fenced did.
func (b *bench) latencies(ctx context.Context) error {
	var hosts, machines []failure
	next := time.Now().Truncate(time.Second).Add(stride)
	for i := range b.Samples {
		if !rig.Sleep(ctx, time.Until(next)) {
			return ctx.Err()
		}
		host, err := b.fail(ctx, b.fleet.metal[i], metalTimeout)
		if err != nil {
			return err
		}
		machine, err := b.fail(ctx, b.fleet.cloud[i], cloudTimeout)
		if err != nil {
			return err
		}
		hosts, machines = append(hosts, host), append(machines, machine)
		next = next.Add(stride)
	}
	for i, f := range hosts {
		d, err := b.firstByte(ctx, b.metal.targets[i], f)
		if err != nil {
			return err
		}
		b.result.Metal = append(b.result.Metal, d)
	}
	for _, f := range machines {
		d, err := b.deletion(ctx, f)
		if err != nil {
			return err
		}
		b.result.Cloud = append(b.result.Cloud, d)
	}
	return nil
}

// fail makes a Node's Ready Unknown since the second that runs.
func (b *bench) fail(ctx context.Context, n *corev1.Node, timeout time.Duration) (failure, error) {
	since := time.Now().Truncate(time.Second) // a condition has no fractions of a second
	fail(n, since)
	if _, err := b.fleet.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
		return failure{}, fmt.Errorf("make Node %s fail: %w", n.Name, err)
	}
	if late := time.Since(since); late > timeout-warning {
		return failure{}, fmt.Errorf("make Node %s fail: that took until %s after its second began, too near to its deadline", n.Name, late)
	}
	return failure{name: n.Name, deadline: since.Add(timeout)}, nil
}

// firstByte is from the deadline to the first datagram at the host's BMC.
func (b *bench) firstByte(ctx context.Context, t *target, f failure) (time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, times.Later(f.deadline, time.Now()).Add(patience))
	defer cancel()
	select {
	case at := <-t.asked:
		return at.Sub(f.deadline), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait until the BMC of %s is asked: %w", f.name, ctx.Err())
	}
}

// deletion is from the deadline to the arrival of the Machine's DELETE, by the
// API server's own audit log.
func (b *bench) deletion(ctx context.Context, f failure) (time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, times.Later(f.deadline, time.Now()).Add(patience))
	defer cancel()
	for {
		found, err := b.cluster.Deletions("machines", f.name)
		if err != nil {
			return 0, err
		}
		if len(found) > 0 {
			return found[0].Received.Sub(f.deadline), nil
		}
		if !rig.Sleep(ctx, stride/4) {
			return 0, fmt.Errorf("wait for the deletion of Machine %s: %w", f.name, ctx.Err())
		}
	}
}
