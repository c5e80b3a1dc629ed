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
	guards := func(a candidate, p *probe) []reason.Gate {
		return slices.DeleteFunc(c.gates(a, p, now), func(g reason.Gate) bool { return asArmed && (g.Name == "mode" || g.Name == "quietPeriod") })
	}
	acting := c.book.actingChecks(now)
	p, lookups := Plan{Cluster: c.opt.Name}, planLookups
	for i := range acting {
		check := &acting[i]
		full := c.book.Check(check.ID())
		for j := range check.Targets {
			if full != nil {
				p.Items = append(p.Items, c.planTarget(ctx, full, check, &check.Targets[j], now, &lookups, guards)...)
			}
		}
	}
	return p, nil
}

// planTarget evaluates the gates of one target; none if it has changed since the report. It
// looks things up only if the gates without I/O pass, and only while lookups are left.
func (c *Cluster) planTarget(ctx context.Context, full *policy.Check, check *policy.CheckReport, t *policy.TargetReport, now time.Time, lookups *int,
	ask func(candidate, *probe) []reason.Gate,
) []Planned {
	a, ok := c.candidate(full, t)
	if !ok {
		return nil
	}
	gates := policy.ExplainTarget(check, t)
	p := c.probes.last(a.key)
	guards := ask(a, p)
	if _, refused := firstFailing(slices.Concat(gates, guards)); p == nil && !refused && *lookups > 0 {
		*lookups--
		guards = ask(a, c.probes.unprobed(ctx, a.draft))
	}
	gates = slices.Concat(gates, guards, c.backOffGates(a, now))
	item := Planned{Check: check.ID(), Machine: t.Machine, Node: t.Node, Action: t.Action, Trigger: t.Trigger, Earliest: earliestPass(gates)}
	if g, refused := firstFailing(gates); refused {
		item.Gate = &g
	}
	return []Planned{item}
}
