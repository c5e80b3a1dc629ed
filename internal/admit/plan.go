package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// Plan is what fenced would do now in one cluster, in the order in which it would start.
type Plan struct {
	Cluster string
	Items   []Planned
}

// Planned is one target for which a check asks for an action.
type Planned struct {
	Check         policy.CheckID
	Machine, Node string
	Action        policy.Action
	Trigger       string // why the check asks for the action
	// Gate is the first failing gate; nil: the run would start now.
	Gate *reason.Gate
	// Earliest is when every gate can pass; zero: unknown.
	Earliest time.Time
}

// planLookups is the number of targets without a probe for which a plan looks up host,
// credentials and etcd. More than that would not start at once anyway.
const planLookups = 50

// Plan evaluates the gates of every target that a check wants remediated. It reads no BMC:
// results of a probe are included once the daemon has probed the target. With asArmed, the plan is
// that of a cluster in mode observe as soon as it is armed and the quiet period is over.
func (c *Cluster) Plan(ctx context.Context, asArmed bool) (Plan, error) {
	if !c.book.Seen() {
		return Plan{}, errNotSeen()
	}
	now := time.Now()
	plans := planner{c: c, now: now, asArmed: asArmed, lookups: planLookups}
	acting := c.book.actingChecks(now)
	p := Plan{Cluster: c.opt.Name, Items: plans.requests(ctx)}
	for i := range acting {
		check := &acting[i]
		full := c.book.Check(check.ID())
		for j := range check.Targets {
			if full != nil {
				p.Items = append(p.Items, plans.target(ctx, full, check, &check.Targets[j])...)
			}
		}
	}
	return p, nil
}

// planner makes the items of a plan. It looks things up while lookups are left.
type planner struct {
	c       *Cluster
	now     time.Time
	asArmed bool // mode observe and the quiet period forbid nothing
	lookups int
}

// guards evaluates the guards of a candidate.
func (w *planner) guards(a candidate, p *probe) []reason.Gate {
	return slices.DeleteFunc(w.c.gates(a, p, w.now), func(g reason.Gate) bool { return w.asArmed && (g.Name == "mode" || g.Name == "quietPeriod") })
}

// target evaluates the gates of one target; none if it has changed since the report. It
// looks things up only if the gates without I/O pass, and only while lookups are left.
func (w *planner) target(ctx context.Context, full *policy.Check, check *policy.CheckReport, t *policy.TargetReport) []Planned {
	a, ok := w.c.candidate(full, t)
	if !ok {
		return nil
	}
	return []Planned{w.candidate(ctx, a, t, policy.ExplainTarget(check, t))}
}

// requests plans the targets of the remediation requests.
func (w *planner) requests(ctx context.Context) (items []Planned) {
	asked := w.c.Requested
	if w.c.opt.Requests == nil {
		return nil
	}
	for _, q := range asked.book.requested(w.now) {
		if a, ok := asked.candidate(&q.Requested); ok && q.Target.Action != policy.None && !q.isCarriedOut() {
			_, gates := asked.gate(q.Target.Subject(), w.now)
			items = append(items, w.candidate(ctx, a, &q.Target, gates))
		}
	}
	return items
}

// candidate evaluates the gates of a candidate after those of its check or request.
func (w *planner) candidate(ctx context.Context, a candidate, t *policy.TargetReport, gates []reason.Gate) Planned {
	c, now := w.c, w.now
	p := c.probes.last(a.key)
	guards := w.guards(a, p)
	if _, refused := firstFailing(slices.Concat(gates, guards)); p == nil && !refused && w.lookups > 0 {
		w.lookups--
		guards = w.guards(a, c.probes.unprobed(ctx, a.draft))
	}
	gates = slices.Concat(gates, guards, c.Handovers.gate(a.draft.Target, now), c.backOffGates(a, now))
	item := Planned{Check: a.check.ID(), Machine: t.Machine, Node: t.Node, Action: t.Action, Trigger: t.Trigger, Earliest: earliestPass(gates)}
	if g, refused := firstFailing(gates); refused {
		item.Gate = &g
	}
	return item
}
