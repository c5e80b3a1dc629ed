package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/rig"
)

// manyTimeout leaves time to make all of them fail before the first deadline. The test has a longer one.
var manyTimeout = 6 * time.Second

const (
	// aftermath is for how long after the last deletion a program is measured: runs end, slots are
	// freed.
	aftermath = 2 * time.Second
	// lookAgain is between two looks at the audit log of the API server.
	lookAgain = 2 * time.Second
	// burnWord is the argument that makes this program the other work of a busy machine.
	burnWord = "burn"
)

// The programs that are compared, one after the other: each round begins with another one. After these two come other builds of fenced.
const (
	byFenced = iota
	byController
	byOther
)

// The machine does nothing else, or each of its processors has a loop of another program to run.
const (
	quiet = iota
	busy
)

// attempt is what became of Machines that failed at the same moment.
type attempt struct {
	// From is when the timeout was over.
	From time.Time
	// Deleted is from the timeout to the arrival of each Machine's DELETE at the API server, in order.
	Deleted []time.Duration
	// UntilLast is the CPU time of the program and of the control plane from the timeout until the last
	// DELETE.
	UntilLast cpuShares
	// CPU is what the program used from the failure until the aftermath. Peak is the most memory since its start.
	CPU  time.Duration
	Peak int64
}

// Many has the attempts of all rounds, by how busy the machine was and by whose they are.
type Many [2][][]attempt

// contestants are the names of the programs.
func (o *Options) contestants() []string {
	return append([]string{"fenced", "OpenShift's controller"}, o.Also...)
}

// rounds measures both programs in turn: quiet and then, if asked for, busy.
func (b *bench) rounds(ctx context.Context) error {
	n := len(b.contestants())
	b.result.Many = Many{quiet: make([][]attempt, n), busy: make([][]attempt, n)}
	for round := range b.Rounds {
		for load := quiet; load <= busy && (load == quiet || b.Busy); load++ {
			for i := range n {
				who := (round + load + i) % n
				a, err := b.round(ctx, who, load)
				if err != nil {
					return err
				}
				b.result.Many[load][who] = append(b.result.Many[load][who], a)
			}
		}
	}
	return nil
}

// round starts a program, has Machines fail for it, and ends it again.
func (b *bench) round(ctx context.Context, who, load int) (attempt, error) {
	p, err := b.startContestant(ctx, who)
	if err != nil {
		return attempt{}, err
	}
	defer p.stop()
	if !rig.Sleep(ctx, b.Settle) {
		return attempt{}, ctx.Err()
	}
	if load == busy {
		burner, err := b.startBurner()
		if err != nil {
			return attempt{}, err
		}
		defer burner.stop()
	}
	b.tell("failing %d cloud Machines at the same moment for %s, %s", b.Together, p.name, [...]string{"quiet", "busy"}[load])
	a, err := b.together(ctx, p)
	if err != nil {
		return a, fmt.Errorf("%w\nthe end of the log of %s:\n%s", err, p.name, p.logTail())
	}
	b.tell("%s: median %s, last %s, CPU times until then %v", b.contestants()[who], milli(times.Quantile(a.Deleted, 0.5)), milli(times.Quantile(a.Deleted, 1)), a.UntilLast)
	p.stop()
	return a, b.fleet.renew(ctx, b.cluster)
}

func (b *bench) startContestant(ctx context.Context, who int) (*process, error) {
	program := b.programs.Fenced
	switch {
	case who == byController:
		return b.startController(ctx)
	case who >= byOther:
		program = b.Also[who-byOther]
	}
	d, err := b.startDaemon(ctx, program)
	if err != nil {
		return nil, err
	}
	return d.process, nil
}

// startBurner starts the other work of a busy machine.
func (b *bench) startBurner() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return startProcess(b.dir, burnWord, self, burnWord)
}

// burn keeps every processor busy until ctx ends, or for as long as a measurement can take.
func burn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	var g sync.WaitGroup
	for range runtime.NumCPU() {
		g.Go(func() {
			for ctx.Err() == nil {
			}
		})
	}
	g.Wait()
	return nil
}

// startController starts OpenShift's machine-healthcheck controller, and waits until it has evaluated the check
// of the Machines that are to fail. It has all rights, and no Lease to renew: it is alone.
func (b *bench) startController(ctx context.Context) (*process, error) {
	kubeconfig, err := b.cluster.Kubeconfig("machine-healthcheck", rig.AdminGroup)
	if err != nil {
		return nil, err
	}
	p, err := startProcess(b.dir, "machine-healthcheck", b.controller, "--kubeconfig="+kubeconfig, "--namespace="+rig.Namespace,
		"--metrics-bind-address=0", "--health-addr=0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for evaluated := []byte("Reconciling " + rig.Namespace + "/" + manyPool); ; {
		if log, err := os.ReadFile(p.log); err == nil && bytes.Contains(log, evaluated) {
			return p, nil
		}
		if p.ended() || !rig.Sleep(ctx, startPoll) {
			p.stop()
			return nil, fmt.Errorf("start OpenShift's controller: it has not evaluated %s\n%s", manyPool, p.logTail())
		}
	}
}

// together makes many cloud Machines fail in the same second, and measures when a program deletes
// them.
func (b *bench) together(ctx context.Context, p *process) (a attempt, err error) {
	before, err := p.cpuTime()
	if err != nil {
		return a, err
	}
	if a.From, err = b.failTogether(ctx); err != nil {
		return a, err
	}
	apiServer, etcd, err := b.cluster.PIDs()
	if err != nil {
		return a, err
	}
	used := startShares(ctx, p.cmd.Process.Pid, apiServer, etcd)
	defer used.stop()
	if a.Deleted, err = b.deletions(ctx, a.From, namesOf(b.fleet.together)); err != nil {
		return a, err
	}
	if a.UntilLast, err = used.measure(a.From, a.From.Add(a.Deleted[len(a.Deleted)-1])); err != nil {
		return a, err
	}
	if !rig.Sleep(ctx, aftermath) {
		return a, ctx.Err()
	}
	after, err := p.cpuTime()
	if err != nil {
		return a, err
	}
	a.CPU = after - before
	a.Peak, err = p.peak()
	return a, err
}

// failTogether makes the Nodes' Ready Unknown, all since the same second.
func (b *bench) failTogether(ctx context.Context) (deadline time.Time, err error) {
	since := time.Now().Truncate(time.Second)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, n := range b.fleet.together {
		g.Go(func() error {
			fail(n, since)
			if _, err := b.fleet.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("make Node %s fail: %w", n.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return time.Time{}, err
	}
	if late := time.Since(since); late > manyTimeout-warning {
		return time.Time{}, fmt.Errorf("make %d Nodes fail: that took until %s after their second began, too near to their deadline", len(b.fleet.together), late)
	}
	return since.Add(manyTimeout), nil
}

// deletions returns how long after a time each Machine's DELETE arrived, by the API server's own
// audit log. It looks there only after the time that they usually take, because that log is long.
func (b *bench) deletions(ctx context.Context, from time.Time, names []string) ([]time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, from.Add(patience))
	defer cancel()
	found := map[string]time.Duration{}
	for len(found) < len(names) {
		if !rig.Sleep(ctx, max(time.Until(from), 0)+lookAgain) {
			return nil, fmt.Errorf("wait for the deletions of %d Machines: %d were deleted: %w", len(names), len(found), ctx.Err())
		}
		all, err := b.cluster.AllDeletions("machines")
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			if slices.Contains(names, d.Name) && d.Received.After(from) { // not of an earlier round
				found[d.Name] = d.Received.Sub(from)
			}
		}
	}
	return slices.Sorted(maps.Values(found)), nil
}

func namesOf(nodes []*corev1.Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}

// togetherRows are the rows of the table, with their bounds on a quiet machine.
var togetherRows = []struct {
	name  string
	share float64
	bound time.Duration
}{
	{"first", 0, 100 * time.Millisecond},
	{"median", 0.5, 250 * time.Millisecond},
	{"last", 1, 800 * time.Millisecond},
}

// The bounds of CPU time and memory while many fail at the same moment.
const (
	boundManyCPU  = 3300 * time.Millisecond
	boundManyPeak = 83 << 20
)

// print writes one table for each load: of each figure its median over the rounds, and after it those of all rounds.
func (m *Many) print(w io.Writer, names []string) {
	for load, by := range m {
		if len(by) == 0 || len(by[byFenced]) == 0 {
			continue
		}
		fmt.Fprintf(w, "timeout over for %d at the same moment -> DELETE, %s, %d rounds\tfenced\tbound\tfenced / bound",
			len(by[byFenced][0].Deleted), [...]string{"nothing else runs", "every processor has other work, too"}[load], len(by[byFenced]))
		for _, name := range names[1:] {
			fmt.Fprintf(w, "\t%s\tfenced / that", name)
		}
		fmt.Fprintln(w)
		row := func(what string, of func(attempt) float64, show func(float64) string, bound float64) {
			fmt.Fprint(w, what)
			var fenced float64
			for who, attempts := range by {
				var all []float64
				var each []string
				for _, a := range attempts {
					all, each = append(all, of(a)), append(each, show(of(a)))
				}
				slices.Sort(all)
				median := all[(len(all)-1)/2]
				fmt.Fprintf(w, "\t%s (%s)", show(median), strings.Join(each, ", "))
				switch {
				case who != byFenced:
					fmt.Fprintf(w, "\t%.2f", fenced/median)
				case bound > 0 && load == quiet:
					fmt.Fprintf(w, "\t%s\t%.2f", show(bound), median/bound)
				default:
					fmt.Fprint(w, "\t-\t-")
				}
				if who == byFenced {
					fenced = median
				}
			}
			fmt.Fprintln(w)
		}
		millis := func(seconds float64) string { return milli(time.Duration(seconds * float64(time.Second))) }
		for _, r := range togetherRows {
			row(r.name, func(a attempt) float64 { return times.Quantile(a.Deleted, r.share).Seconds() }, millis, r.bound.Seconds())
		}
		for i, name := range sharers {
			row("CPU time of "+name+", from the timeout until the last", func(a attempt) float64 { return a.UntilLast[i].Seconds() }, millis, 0)
		}
		row(fmt.Sprintf("CPU time of the program, from the failure until %s after the last", aftermath), func(a attempt) float64 { return a.CPU.Seconds() }, millis, boundManyCPU.Seconds())
		row("most memory of the program until then", func(a attempt) float64 { return float64(a.Peak) }, func(v float64) string { return mebi(int64(v)) }, boundManyPeak)
		fmt.Fprintln(w)
	}
}
