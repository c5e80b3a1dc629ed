package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
)

// Fence begins a run on one Node. It skips the check's limit, the clocks and
// the rates, and no other gate; a refusal is a *Refusal.
func (e *Engine) Fence(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	a, err := c.manual(o)
	if err != nil {
		return order.Outcome{}, err
	}
	for _, r := range c.openRuns() {
		if r.Target.Node == o.Node && r.OffOnly == o.OffOnly && r.Step != remediate.Held && r.Strategy == remediate.PowerCycle {
			return order.Outcome{Run: r.ID, Joined: true}, nil
		}
	}
	now := time.Now()
	gates := append(claim(a), guard.Gates(e.opt.Guards, c.facts(a, nil, now), now)...)
	if g, refused := firstFailing(gates); refused {
		return order.Outcome{Gates: gates}, reason.RefusalOf(g)
	}
	p := c.probeTarget(ctx, a.draft, nil)
	for range p.levels { // a person does not wait for the next probe
		if p.untried() {
			p = c.probeTarget(ctx, a.draft, p)
		}
	}
	now = time.Now()
	if again, err := c.manual(o); err == nil { // the look took its time
		a.doubt, a.hostLost = again.doubt, again.hostLost
	}
	gates = append(claim(a), guard.Gates(e.opt.Guards, c.facts(a, p, now), now)...)
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
	r, err := c.start(ctx, a, c.completed(p, nil), p.session)
	if err != nil && p.session != nil {
		p.session.Close(ctx)
	}
	return order.Outcome{Run: r.ID, Gates: gates}, err
}

// manual drafts the run that a person ordered.
func (c *cluster) manual(o order.Order) (candidate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.judged {
		return candidate{}, errNotJudged()
	}
	n, m := c.ledger.Node(o.Node), c.ledger.MachineOf(o.Node)
	if n == nil && m == nil {
		return candidate{}, &reason.Refusal{Reason: reason.NoSuchNode, Message: "no Node and no Machine's node is called " + o.Node}
	}
	r := c.baseRun()
	r.Strategy, r.OffOnly = remediate.PowerCycle, o.OffOnly
	r.Target = c.target(m, n, o.Node)
	r.ControlPlane = n != nil && n.ControlPlane || m != nil && m.ControlPlane
	if r.ControlPlane {
		r.Isolation = c.controlPlaneIsolation(r.Target, nil)
	}
	r.Manual = &remediate.Order{Actor: o.Actor, Reason: o.Reason, At: time.Now().UTC()}
	r.Trigger = "manual fence by " + o.Actor + ": " + o.Reason
	return candidate{key: "manual|" + o.Node, draft: r, node: n, hostLost: c.hostLost(m), doubt: c.ledger.Doubt(m, n)}, nil
}

// claim is a gate for a Node of which nobody can say whose it is: the Machine that
// would ask to be left alone may not be the one that is seen. None without a doubt.
func claim(a candidate) []reason.Gate {
	if a.doubt == (policy.Doubt{}) {
		return nil
	}
	return []reason.Gate{{Name: "claim", Reason: a.doubt.Reason, Value: a.doubt.Message, Threshold: "a Machine of its own, or none", Source: "watch"}}
}

// Unfence brings the host of an open run back: an abort before the Node was
// isolated, power-on after it. It returns when the order is durable.
func (e *Engine) Unfence(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	r, open := c.openOn(o.Node)
	if !open {
		return order.Outcome{}, &reason.Refusal{Reason: reason.NoRun, Message: "no run is open on " + o.Node + ", so nothing of fenced keeps it off"}
	}
	return c.order(ctx, r.ID, o, "unfences", func(r remediate.Run) (remediate.Run, error) {
		r.Unfence = o.ForRecord()
		return r, nil
	})
}

// Abort wants no more of a run: before the isolation its host goes back On; after
// it, it is completed. With AsIs a Held run ends and the host stays as it is.
func (e *Engine) Abort(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, _, err := e.withRun(o)
	if err != nil {
		return order.Outcome{}, err
	}
	return c.order(ctx, o.Run, o, "aborts", func(r remediate.Run) (remediate.Run, error) {
		may, why := remediate.CanAbort(r)
		if o.AsIs {
			may, why = remediate.CanClose(r)
		}
		if !may {
			return r, &reason.Refusal{Reason: reason.OrderRefused, Message: why}
		}
		r.Abort = o.ForRecord()
		return r, nil
	})
}

// withRun finds the open run that an order names, and its cluster.
func (e *Engine) withRun(o order.Order) (*cluster, remediate.Run, error) {
	for _, c := range e.clusters {
		if o.Cluster != "" && o.Cluster != c.opt.Name {
			continue
		}
		c.mu.Lock()
		r, known := c.runs[o.Run]
		c.mu.Unlock()
		switch {
		case !known:
			continue
		case !r.Open():
			return nil, r, &reason.Refusal{Reason: reason.NoRun, Message: "run " + o.Run + " has ended: " + string(r.Step)}
		}
		return c, r, nil
	}
	return nil, remediate.Run{}, &reason.Refusal{Reason: reason.NoSuchRun, Message: "no run " + o.Run}
}

// openOn is the open run on a Node.
func (c *cluster) openOn(node string) (remediate.Run, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runs {
		if r.Open() && r.Target.Node == node {
			return r, true
		}
	}
	return remediate.Run{}, false
}

// order gives a run's worker an order and returns once that is durable.
func (c *cluster) order(ctx context.Context, id string, o order.Order, verb string, change func(remediate.Run) (remediate.Run, error)) (order.Outcome, error) {
	c.mu.Lock()
	r := c.runs[id]
	c.mu.Unlock()
	o.Node, o.Run = r.Target.Node, id
	known, err := c.runner.Order(ctx, id, change, o.Event(verb))
	switch {
	case !known:
		return order.Outcome{}, cmp.Or(c.lead.Refuse(), run.ErrEnded(id))
	case err != nil:
		return order.Outcome{}, err
	}
	return order.Outcome{Run: id}, nil
}

// Arm lets an observing cluster act on its own judgement; Disarm takes that
// back. A cluster whose file says evaluate needs no arming.
func (e *Engine) Arm(ctx context.Context, o order.Order, armed bool) error {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return err
	}
	if err := c.lead.Refuse(); err != nil {
		return err
	}
	verb := map[bool]string{true: "arms", false: "disarms"}[armed]
	err = e.stop.Change(ctx, c.opt.Name, func(s *state.Cluster) {
		s.Armed, s.ArmedBy, s.ArmedReason, s.ArmedAt = armed, o.Actor, o.Reason, time.Now().UTC()
	})
	if err == nil {
		c.emit(o.Event(verb))
	}
	return err
}
