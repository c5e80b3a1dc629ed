package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// ClusterStatus is what is known about one cluster now.
type ClusterStatus struct {
	Name, Mode string
	Armed      bool   // fenced acts on its own judgement here
	Paused     string // why, "" when it is not
	View       View
	ViewBad    string
	Nodes      []*policy.Node // by name; read only
	Report     policy.Report
	Runs       []remediate.Run // open ones, by ID
}

// Status is the state of every cluster, by name.
func (e *Engine) Status() []ClusterStatus {
	var all []ClusterStatus
	for _, name := range slices.Sorted(maps.Keys(e.clusters)) {
		c := e.clusters[name]
		s := ClusterStatus{Name: name, Mode: c.opt.Mode, Paused: e.paused(c), View: c.opt.Watch.View(), Runs: c.openRuns()}
		c.mu.Lock()
		s.Armed = c.opt.Mode == policy.ModeEvaluate || c.stored.Armed
		s.ViewBad, s.Report = c.viewBad, c.report
		for _, n := range slices.Sorted(maps.Keys(c.snapshot.Nodes)) {
			s.Nodes = append(s.Nodes, c.snapshot.Nodes[n])
		}
		c.mu.Unlock()
		all = append(all, s)
	}
	return all
}

// Explanation is why a Node is, or is not, fenced.
type Explanation struct {
	Cluster, Node string
	Verdict       policy.Verdict // Unhealthy if any check says so; "" when none covers the Node
	Gates         []policy.Gate
	Run           *remediate.Run // the open one, else the newest that ended
	Earliest      time.Time      // when the last failing gate could pass; zero when unknown
}

// Explain lists every gate of a Node in the order the daemon asks them, with
// the very functions that decide.
func (e *Engine) Explain(ctx context.Context, cluster, node string) (Explanation, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return Explanation{}, err
	}
	a, err := c.manual(Order{Node: node})
	if err != nil {
		return Explanation{}, err
	}
	a.draft.Manual, a.protected = nil, c.protected(node)
	x := Explanation{Cluster: c.opt.Name, Node: node}
	c.mu.Lock()
	report := c.report
	c.mu.Unlock()
	if check, t := askedFor(&report, node); t != nil {
		a = c.applicant(check, t) // the very one that the deciding loop asks about
	}
	c.mu.Lock()
	for _, r := range c.runs {
		if r.Target.Node == node && (x.Run == nil || r.Open() || !x.Run.Open() && r.ID > x.Run.ID) {
			x.Run = &r
		}
	}
	var p *probe
	for k, each := range c.probes {
		if strings.HasSuffix(k, "|"+node) && !each.at.IsZero() {
			p = each
		}
	}
	c.mu.Unlock()
	if p == nil {
		p = c.unprobed(ctx, a.draft)
	}
	x.Verdict = verdictOn(&report, node)
	now := time.Now()
	x.Gates = append(policy.Explain(report, node), policy.Guards(c.e.opt.Guards, c.facts(a, p, now), now)...)
	x.Earliest = whenOpen(x.Gates)
	return x, nil
}

// askedFor is the target of a check that asks for an action on the Node.
func askedFor(r *policy.Report, node string) (*policy.CheckReport, *policy.TargetReport) {
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			if t := &r.Checks[i].Targets[j]; t.Node == node && t.Action != policy.None {
				return &r.Checks[i], t
			}
		}
	}
	return nil, nil
}

func verdictOn(r *policy.Report, node string) (v policy.Verdict) {
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			if t := &r.Checks[i].Targets[j]; t.Node == node && v != policy.Unhealthy {
				v = t.Verdict
			}
		}
	}
	return v
}

// unprobed is what can be said about a host without asking its BMC: whether
// there is one, and whether its credentials can be had.
func (c *cluster) unprobed(ctx context.Context, draft remediate.Run) *probe {
	p := &probe{draft: draft}
	if draft.Strategy != remediate.PowerCycle {
		return p
	}
	h, err := c.host(ctx, draft.Target)
	if err != nil {
		p.hostError, p.hostDetail = hostReason(err), err.Error()
		return p
	}
	p.draft.Target.Host = h.Name
	p.identity = policy.IdentityFact{Mode: h.IdentityMode, Node: draft.Target.SystemUUID}
	return p
}

// whenOpen is when every failing gate could pass; zero when one does not say.
func whenOpen(gates []policy.Gate) time.Time {
	var t time.Time
	for _, g := range gates {
		switch {
		case g.Pass:
		case g.Until.IsZero():
			return time.Time{}
		default:
			t = later(t, g.Until)
		}
	}
	return t
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
