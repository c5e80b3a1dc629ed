package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// Plan is what fenced would do now in one cluster, in the order in which it
// would begin.
type Plan struct {
	Cluster string
	At      time.Time
	Items   []Planned
}

// Planned is one target that a check asks something for.
type Planned struct {
	Check         policy.CheckID
	Machine, Node string
	Action        policy.Action
	Trigger       string // what the check saw
	// Gate is the first one that does not hold; nil: it would be begun now.
	Gate *policy.Gate
	// Earliest is when every gate could hold; zero when one does not say.
	Earliest time.Time
}

// Plan asks the gates about every target that a check wants remedied. It reads
// no BMC: what only a probe can tell is not in it.
func (e *Engine) Plan(ctx context.Context, cluster string) (Plan, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return Plan{}, err
	}
	c.mu.Lock()
	report, judged := c.report, c.judged
	c.mu.Unlock()
	if !judged {
		return Plan{}, errNotJudged()
	}
	now := time.Now()
	p := Plan{Cluster: c.opt.Name, At: now.UTC()}
	for i := range report.Checks {
		check := &report.Checks[i]
		for j := range check.Targets {
			if t := &check.Targets[j]; t.Action != policy.None {
				p.Items = append(p.Items, c.planned(ctx, &report, check, t, now))
			}
		}
	}
	return p, nil
}

func (c *cluster) planned(ctx context.Context, r *policy.Report, check *policy.CheckReport, t *policy.TargetReport, now time.Time) Planned {
	a := c.applicant(check, t)
	gates := append(policy.ExplainTarget(r, check, t), policy.Guards(c.e.opt.Guards, c.facts(a, c.unprobed(ctx, a.draft), now), now)...)
	item := Planned{Check: check.ID(), Machine: t.Machine, Node: t.Node, Action: t.Action, Trigger: t.Trigger, Earliest: whenOpen(gates)}
	if g, refused := firstFailing(gates); refused {
		item.Gate = &g
	}
	return item
}

func errNotJudged() error {
	return &Refusal{Reason: policy.NotSynced, Message: "the cluster has not been seen whole yet"}
}

// Coverage says what every check and budget comes to on one cluster.
func (e *Engine) Coverage(cluster string) ([]policy.Coverage, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.judged {
		return nil, errNotJudged()
	}
	return policy.Cover(c.report, c.snapshot.Checks, c.snapshot.Budgets), nil
}
