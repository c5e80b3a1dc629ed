package admit

import (
	"cmp"
	"context"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Fence begins a run on one Node. It skips the check's limit, the clocks and
// the rates, and no other gate; a refusal is a *reason.Refusal.
func (c *Cluster) Fence(ctx context.Context, o order.Order) (order.Outcome, error) {
	a, err := c.book.ordered(o)
	if err != nil {
		return order.Outcome{}, err
	}
	for _, r := range c.book.OpenRuns() {
		if r.Target.Node == o.Node && r.OffOnly == o.OffOnly && r.Step != remediate.Held && r.Strategy == remediate.PowerCycle {
			return order.Outcome{Run: r.ID, Joined: true}, nil
		}
	}
	now := time.Now()
	gates := append(claim(a), c.gates(a, nil, now)...)
	if g, refused := firstFailing(gates); refused {
		return order.Outcome{Gates: gates}, reason.RefusalOf(g)
	}
	p := c.probes.probe(ctx, a.draft, nil)
	for range p.levels { // a person does not wait for the next probe
		if p.untried() {
			p = c.probes.probe(ctx, a.draft, p)
		}
	}
	now = time.Now()
	if again, err := c.book.ordered(o); err == nil { // the look took its time
		a.doubt, a.hostLost = again.doubt, again.hostLost
	}
	gates = append(claim(a), c.gates(a, p, now)...)
	g, refused := firstFailing(gates)
	if (refused || o.DryRun) && p.session != nil {
		p.session.Close(ctx)
	}
	switch {
	case refused:
		return order.Outcome{Gates: gates}, reason.RefusalOf(g)
	case o.DryRun:
		return order.Outcome{Gates: gates}, nil
	}
	a.gates = gates
	c.emit(o.Event("fences"))
	r, err := c.start(ctx, a, c.book.opt.Draft.completed(p, nil), p.session)
	if err != nil && p.session != nil {
		p.session.Close(ctx)
	}
	return order.Outcome{Run: r.ID, Gates: gates}, err
}

// claim is a gate for a Node of which nobody can say whose it is: the Machine that
// would ask to be left alone may not be the one that is seen. None without a doubt.
func claim(a candidate) []reason.Gate {
	if a.doubt == (policy.Doubt{}) {
		return nil
	}
	return []reason.Gate{{Name: "claim", Reason: a.doubt.Reason, Value: a.doubt.Message, Threshold: "a Machine of its own, or none", Source: "watch"}}
}

// Order gives a run's worker an order and returns once that is durable.
func (c *Cluster) Order(ctx context.Context, id string, o order.Order, verb string, change func(remediate.Run) (remediate.Run, error)) (order.Outcome, error) {
	r, _ := c.book.Run(id)
	o.Node, o.Run = r.Target.Node, id
	known, err := c.Runner.Order(ctx, id, change, o.Event(verb))
	switch {
	case !known:
		return order.Outcome{}, cmp.Or(c.opt.Lead.Refuse(), run.ErrEnded(id))
	case err != nil:
		return order.Outcome{}, err
	}
	return order.Outcome{Run: id}, nil
}
