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

// Fence starts a run on one Node or Machine. It skips the limit of the check, the waits and the rates,
// and no other gate. A refusal is a *reason.Refusal.
func (c *Cluster) Fence(ctx context.Context, o order.Order) (order.Outcome, error) {
	a, err := c.book.candidateForOrder(o)
	if err != nil {
		return order.Outcome{}, err
	}
	for _, r := range c.book.OpenRuns() {
		if isOn(&r, o.Of()) && r.OffOnly == o.OffOnly && !r.Step.Idle() && r.Strategy == remediate.PowerCycle {
			return order.Outcome{Run: r.ID, Joined: true}, nil
		}
	}
	if o.DryRun {
		return c.ByHand.dryRun(ctx, o, a)
	}
	defer c.ByHand.takeLease(ctx, a)()
	now := time.Now()
	gates := append(uncertainMachineGates(a), c.gates(a, nil, now)...)
	if g, refused := firstFailing(gates); refused {
		return order.Outcome{Gates: gates}, reason.RefusalOf(g)
	}
	p := c.probes.probeForOrder(ctx, a.draft, nil)
	now = time.Now()
	if again, err := c.book.candidateForOrder(o); err == nil { // the cluster may have changed during the probe
		a.doubt, a.missingHost = again.doubt, again.missingHost
	}
	gates = append(uncertainMachineGates(a), c.gates(a, p, now)...)
	if g, refused := firstFailing(gates); refused {
		if p.session != nil {
			p.session.Close(ctx)
		}
		return order.Outcome{Gates: gates}, reason.RefusalOf(g)
	}
	a.gates = gates
	c.emit(o.Event("fences"))
	r, err := c.start(ctx, a, c.book.opt.Draft.complete(p, nil), p.session)
	if err != nil && p.session != nil {
		p.session.Close(ctx)
	}
	return order.Outcome{Run: r.ID, Gates: gates}, err
}

// uncertainMachineGates returns a failing gate if it is uncertain which Machine the Node
// belongs to: that Machine may forbid remediation, and may not be in the view. The gate's
// name "claim" is stable: it is shown in JSON.
func uncertainMachineGates(a candidate) []reason.Gate {
	if a.doubt == (policy.Doubt{}) {
		return nil
	}
	return []reason.Gate{{Name: "claim", Reason: a.doubt.Reason, Value: a.doubt.Message, Threshold: "a Machine of its own, or none", Source: "watch"}}
}

// Order passes an order to the worker of a run, and returns when it is durable.
func (c *Cluster) Order(ctx context.Context, id string, o order.Order, verb string, change func(remediate.Run) (remediate.Run, error)) (order.Outcome, error) {
	r, _ := c.book.Run(id)
	o.Node, o.Machine, o.Run = r.Target.Node, r.Target.WithoutNode(), id
	known, err := c.Runner.Order(ctx, id, change, o.Event(verb))
	switch {
	case !known:
		return order.Outcome{}, cmp.Or(c.opt.Lead.Refuse(), run.ErrEnded(id))
	case err != nil:
		return order.Outcome{}, err
	}
	return order.Outcome{Run: id}, nil
}
