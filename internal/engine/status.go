package engine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
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
	View    View
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
			Name: name, Mode: c.opt.Mode, Paused: e.stop.Paused(name), Armed: c.armed(), View: c.view(), Runs: c.openRuns(),
			Owner: c.lead.Leads(), OwnerName: o.Instance, Epoch: o.Epoch,
		}
		if s.Owner || s.Epoch == 0 || s.OwnerName == e.opt.Instance {
			s.Idle = c.lead.WhyNotAct(time.Now())
		}
		c.mu.Lock()
		s.ViewBad = c.viewBad
		if c.judged {
			s.Nodes, s.Checks = c.ledger.Fleet("").Nodes, c.ledger.Counters()
		}
		c.mu.Unlock()
		all = append(all, s)
	}
	return all
}

// actsAlone says whether fenced acts on its own judgement in a cluster.
func actsAlone(mode string, stored state.Cluster) bool {
	return mode == guard.ModeEvaluate || mode == guard.ModeObserve && stored.Armed
}

// Report is what the checks find in a cluster now, with every target. It is for
// people: its cost grows with the cluster.
func (e *Engine) Report(cluster string) (policy.Report, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return policy.Report{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.judged {
		return policy.Report{}, errNotJudged()
	}
	return c.ledger.Report(time.Now()), nil
}

// Runs gives the runs of one cluster (or all, with no name), newest first.
func (e *Engine) Runs(cluster string) []remediate.Run {
	var all []remediate.Run
	for name, c := range e.clusters {
		if cluster != "" && cluster != name {
			continue
		}
		c.mu.Lock()
		all = slices.AppendSeq(all, maps.Values(c.runs))
		c.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b remediate.Run) int { return strings.Compare(b.ID, a.ID) })
	return all
}
