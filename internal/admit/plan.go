package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// Plan is what fenced would do now in one cluster, in the order in which it
// would begin.
type Plan struct {
	Cluster string
	Items   []Planned
}

// Planned is one target that a check asks something for.
type Planned struct {
	Check         policy.CheckID
	Machine, Node string
	Action        policy.Action
	Trigger       string // what the check saw
	// Gate is the first one that does not hold; nil: it would be begun now.
	Gate *reason.Gate
	// Earliest is when every gate could hold; zero when one does not say.
	Earliest time.Time
}

// planLookups is for how many targets that were not probed yet a plan looks up
// host, credentials and etcd; beyond that nothing would begin at once anyway.
const planLookups = 50

// Plan asks the gates about every target that a check wants remedied. It reads
// no BMC: what only a probe can tell is in it once the daemon has probed.
func (c *Cluster) Plan(ctx context.Context) (Plan, error) {
	if !c.book.Seen() {
		return Plan{}, errNotSeen()
	}
	now := time.Now()
	acting := policy.Report{Checks: c.book.acting(now)}
	p, lookups := Plan{Cluster: c.opt.Name}, planLookups
	for i := range acting.Checks {
		check := &acting.Checks[i]
		full := c.book.Check(check.ID())
		for j := range check.Targets {
			if full != nil {
				p.Items = append(p.Items, c.planned(ctx, full, &acting, check, &check.Targets[j], now, &lookups)...)
			}
		}
	}
	return p, nil
}

// planned asks the gates about one target; none if it has changed since. Only
// where the cheap ones hold is anything looked up, while lookups are left.
func (c *Cluster) planned(ctx context.Context, full *policy.Check, r *policy.Report, check *policy.CheckReport, t *policy.TargetReport, now time.Time, lookups *int) []Planned {
	a, ok := c.candidate(full, t)
	if !ok {
		return nil
	}
	gates := append(policy.ExplainTarget(r, check, t), executor(full, t)...)
	p := c.probes.last(a.key)
	guards := c.gates(a, p, now)
	if _, refused := firstFailing(slices.Concat(gates, guards)); p == nil && !refused && *lookups > 0 {
		*lookups--
		guards = c.gates(a, c.probes.unprobed(ctx, a.draft), now)
	}
	gates = slices.Concat(gates, guards, c.backOff(a, now))
	item := Planned{Check: check.ID(), Machine: t.Machine, Node: t.Node, Action: t.Action, Trigger: t.Trigger, Earliest: whenOpen(gates)}
	if g, refused := firstFailing(gates); refused {
		item.Gate = &g
	}
	return []Planned{item}
}
