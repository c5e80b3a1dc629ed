package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// ClusterStatus is what is known about one cluster now.
type ClusterStatus struct {
	Name, Mode string
	// Owner: this instance acts on the cluster; else OwnerName does, in Epoch, or
	// nobody when that is 0.
	Owner     bool
	OwnerName string
	Epoch     uint64
	// Idle is why no instance that is known here acts on the cluster, "" when one does:
	// another installation may, or nobody has taken it.
	Idle    string
	Armed   bool   // fenced acts on its own judgement here
	Paused  string // why, "" when it is not
	View    admit.View
	ViewBad string
	Nodes   int
	Checks  []policy.CheckReport // their counters, without targets
	Runs    []remediate.Run      // open ones, by ID
}

// Status is the state of every cluster, by name. It is cheap at any size.
func (e *Engine) Status() []ClusterStatus {
	var all []ClusterStatus
	for _, name := range slices.Sorted(maps.Keys(e.clusters)) {
		c := e.clusters[name]
		o := e.opt.Owners.Owner(name)
		s := ClusterStatus{
			Name: name, Mode: c.opt.Mode, Paused: e.stop.Paused(name), Armed: c.admit.Armed(), View: c.view.View(), Runs: c.book.OpenRuns(),
			Owner: c.lead.Leads(), OwnerName: o.Instance, Epoch: o.Epoch,
		}
		if s.Owner || s.Epoch == 0 || s.OwnerName == e.opt.Instance {
			s.Idle = c.lead.WhyNotAct(time.Now())
		}
		s.ViewBad = c.view.Problem()
		s.Checks, s.Nodes = c.book.Counters()
		all = append(all, s)
	}
	return all
}

// Report is what the checks find in a cluster now, with every target. It is for
// people: its cost grows with the cluster.
func (e *Engine) Report(cluster string) (policy.Report, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return policy.Report{}, err
	}
	return c.book.Report()
}

// Coverage says what every check and budget comes to on one cluster.
func (e *Engine) Coverage(cluster string) ([]policy.Coverage, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return nil, err
	}
	return c.book.Coverage()
}

// Explain lists every gate of a Node in the order the daemon asks them, with the very
// functions that decide.
func (e *Engine) Explain(ctx context.Context, cluster, node string) (admit.Explanation, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return admit.Explanation{}, err
	}
	return c.admit.Explain(ctx, node)
}

// Plan is what fenced would do now in one cluster. It reads no BMC: what only a probe can
// tell is in it once the daemon has probed.
func (e *Engine) Plan(ctx context.Context, cluster string) (admit.Plan, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return admit.Plan{}, err
	}
	return c.admit.Plan(ctx)
}

// Runs gives the runs of one cluster (or all, with no name), newest first.
func (e *Engine) Runs(cluster string) []remediate.Run {
	var all []remediate.Run
	for name, c := range e.clusters {
		if cluster != "" && cluster != name {
			continue
		}
		all = append(all, c.book.Runs()...)
	}
	slices.SortFunc(all, func(a, b remediate.Run) int { return strings.Compare(b.ID, a.ID) })
	return all
}
