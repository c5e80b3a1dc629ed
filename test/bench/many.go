package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/test/rig"
)

// manyTimeout leaves time to make all of them fail before the first deadline. The test has a longer one.
var manyTimeout = 8 * time.Second

const (
	// sparePrefix names the Machines that the baseline deletes.
	sparePrefix = "spare-"
	// aftermath is for how long after the last deletion fenced is measured: runs end, slots are
	// freed.
	aftermath = 2 * time.Second
	// lookAgain is between two looks at the audit log of the API server.
	lookAgain = 2 * time.Second
)

// Many is what became of Machines that failed at the same moment.
type Many struct {
	// Fenced is from the deadline to the arrival of each Machine's DELETE at the API server.
	Fenced []time.Duration
	// Baseline is the same for a client that only deletes as many Machines, one after another,
	// as a controller with one worker does. It reads nothing and saves nothing.
	Baseline []time.Duration
	// UntilLast is the CPU time of fenced and of the control plane from the deadline until the last
	// DELETE.
	UntilLast cpuShares
	// CPU is what fenced used from the failure until the aftermath. Peak is the most memory.
	CPU  time.Duration
	Peak int64
}

// together makes many cloud Machines fail in the same second, and measures when fenced deletes
// them. Then it measures the baseline.
func (b *bench) together(ctx context.Context, p *process) error {
	b.tell("failing %d cloud Machines at the same moment", b.Together)
	before, err := p.cpuTime()
	if err != nil {
		return err
	}
	deadline, err := b.failTogether(ctx)
	if err != nil {
		return err
	}
	apiServer, etcd, err := b.cluster.PIDs()
	if err != nil {
		return err
	}
	used := startShares(ctx, p.cmd.Process.Pid, apiServer, etcd)
	defer used.stop()
	m := &b.result.Many
	if m.Fenced, err = b.deletions(ctx, deadline, namesOf(b.fleet.together)); err != nil {
		return err
	}
	if m.UntilLast, err = used.measure(deadline, deadline.Add(m.Fenced[len(m.Fenced)-1])); err != nil {
		return err
	}
	if !sleep(ctx, aftermath) {
		return ctx.Err()
	}
	after, err := p.cpuTime()
	if err != nil {
		return err
	}
	m.CPU = after - before
	if m.Peak, err = p.peak(); err != nil {
		return err
	}
	b.tell("deleting as many Machines with a client that does nothing else")
	m.Baseline, err = b.deleteSpares(ctx)
	return err
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
		if !sleep(ctx, max(time.Until(from), 0)+lookAgain) {
			return nil, fmt.Errorf("wait for the deletions of %d Machines: %d were deleted: %w", len(names), len(found), ctx.Err())
		}
		all, err := b.cluster.AllDeletions("machines")
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			if slices.Contains(names, d.Name) {
				found[d.Name] = d.Received.Sub(from)
			}
		}
	}
	return slices.Sorted(maps.Values(found)), nil
}

// deleteSpares deletes the spare Machines one after another.
func (b *bench) deleteSpares(ctx context.Context) ([]time.Duration, error) {
	cfg, err := b.cluster.RESTConfig("baseline", rig.AdminGroup)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	machines := client.Resource(rig.MachineResource).Namespace(rig.Namespace)
	began := time.Now()
	for _, name := range b.fleet.spares {
		if err := machines.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return nil, fmt.Errorf("delete Machine %s: %w", name, err)
		}
	}
	return b.deletions(ctx, began, b.fleet.spares)
}

func namesOf(nodes []*corev1.Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}

// togetherRows are the rows of the table: the bounds, and what was measured elsewhere in that
// setting with OpenShift's controller. Of the first one it is only known how long it takes alone.
var togetherRows = []struct {
	name  string
	share float64
	bound time.Duration
	peer  string
}{
	{"first", 0, 100 * time.Millisecond, "280 ms, alone"},
	{"median", 0.5, 250 * time.Millisecond, "290 ms"},
	{"last", 1, 800 * time.Millisecond, "800 ms"},
}

// The bounds of CPU time and memory while many fail at the same moment.
const (
	boundManyCPU  = 3300 * time.Millisecond
	boundManyPeak = 83 << 20
)

func (r *Result) manyRows(w io.Writer) {
	m := &r.Many
	fmt.Fprintf(w, "timeout over for %d at the same moment -> DELETE\tfenced\tonly deletes, one after another\tfenced / that\tbound\tfenced / bound\tOpenShift's controller, elsewhere\n", len(m.Fenced))
	for _, row := range togetherRows {
		d, base := quantile(m.Fenced, row.share), quantile(m.Baseline, row.share)
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%s\t%.2f\t%s\n", row.name, milli(d), milli(base), d.Seconds()/base.Seconds(),
			milli(row.bound), d.Seconds()/row.bound.Seconds(), row.peer)
	}
	for i, name := range sharers {
		fmt.Fprintf(w, "CPU time of %s, from the timeout until the last\t%s\n", name, milli(m.UntilLast[i]))
	}
	fmt.Fprintf(w, "CPU time of fenced, from the failure until %s after the last\t%s\t\t\t%s\t%.2f\n", aftermath, milli(m.CPU),
		milli(boundManyCPU), m.CPU.Seconds()/boundManyCPU.Seconds())
	fmt.Fprintf(w, "most memory of fenced until then\t%s\t\t\t%s\t%.2f\n", mebi(m.Peak), mebi(boundManyPeak), float64(m.Peak)/boundManyPeak)
}
