package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// Order is what a person asks for. Actor comes from the kernel, never from the
// request.
type Order struct {
	Cluster, Node string
	Actor, Reason string
	OffOnly       bool // stop after step 2
	DryRun        bool // show the gates and change nothing
}

// Outcome is what became of an order.
type Outcome struct {
	Run    string
	Joined bool          // an equal run was open already
	Gates  []policy.Gate // all that were asked, also beside a *Refusal
}

// Fence begins a run on one Node. It skips the check's limit, the clocks and
// the rates, and no other gate; a refusal is a *Refusal.
func (e *Engine) Fence(ctx context.Context, o Order) (Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return Outcome{}, err
	}
	a, err := c.manual(o)
	if err != nil {
		return Outcome{}, err
	}
	for _, r := range c.openRuns() {
		if r.Target.Node == o.Node && r.OffOnly == o.OffOnly && r.Step != remediate.Held && r.Strategy == remediate.PowerCycle {
			return Outcome{Run: r.ID, Joined: true}, nil
		}
	}
	now := time.Now()
	gates := append(claim(a), policy.Guards(e.opt.Guards, c.facts(a, nil, now), now)...)
	if g, refused := firstFailing(gates); refused {
		return Outcome{Gates: gates}, refusalOf(g)
	}
	p := c.look1(ctx, a.draft, nil)
	for range p.levels { // a person does not wait for the next probe
		if p.untried() {
			p = c.look1(ctx, a.draft, p)
		}
	}
	now = time.Now()
	if again, err := c.manual(o); err == nil { // the look took its time
		a.doubt, a.hostLost = again.doubt, again.hostLost
	}
	gates = append(claim(a), policy.Guards(e.opt.Guards, c.facts(a, p, now), now)...)
	g, refused := firstFailing(gates)
	if (refused || o.DryRun) && p.session != nil {
		p.session.close(ctx)
	}
	switch {
	case refused:
		return Outcome{Gates: gates}, refusalOf(g)
	case o.DryRun:
		return Outcome{Gates: gates}, nil
	}
	c.emit(Event{Type: EventOrder, Node: o.Node, Message: o.Actor + " fences: " + o.Reason})
	r, err := c.start(ctx, c.completed(p, nil), p.session)
	if err != nil && p.session != nil {
		p.session.close(ctx)
	}
	return Outcome{Run: r.ID, Gates: gates}, err
}

func refusalOf(g policy.Gate) *Refusal {
	return &Refusal{Reason: g.Reason, Message: g.Name + ": " + g.Value + " (needs " + g.Threshold + ")"}
}

// manual drafts the run that a person ordered.
func (c *cluster) manual(o Order) (applicant, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.judged {
		return applicant{}, errNotJudged()
	}
	n, m := c.ledger.Node(o.Node), c.ledger.MachineOf(o.Node)
	if n == nil && m == nil {
		return applicant{}, &Refusal{Reason: NoSuchNode, Message: "no Node and no Machine's node is called " + o.Node}
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
	return applicant{key: "manual|" + o.Node, draft: r, node: n, hostLost: c.hostLost(m), doubt: c.ledger.Doubt(m, n)}, nil
}

// claim is a gate for a Node of which nobody can say whose it is: the Machine that
// would ask to be left alone may not be the one that is seen. None without a doubt.
func claim(a applicant) []policy.Gate {
	if a.doubt == (policy.Doubt{}) {
		return nil
	}
	return []policy.Gate{{Name: "claim", Reason: a.doubt.Reason, Value: a.doubt.Message, Threshold: "a Machine of its own, or none", Source: "watch"}}
}

// The reasons of orders that name something which is not there.
const (
	// NoSuchNode: an order names a Node nobody knows.
	NoSuchNode policy.Reason = "NoSuchNode"
	// NoSuchCluster: an order names a cluster that is not configured.
	NoSuchCluster policy.Reason = "NoSuchCluster"
	// ClusterRequired: several clusters are configured and none was named.
	ClusterRequired policy.Reason = "ClusterRequired"
	// NoRun: an order needs an open run and there is none.
	NoRun policy.Reason = "NoRun"
)

// Unfence brings the host of an open run back: an abort before the Node was
// isolated, power-on after it. It returns when the order is durable.
func (e *Engine) Unfence(ctx context.Context, o Order) (Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return Outcome{}, err
	}
	var w *worker
	c.mu.Lock()
	for _, each := range c.workers {
		if c.runs[each.id].Target.Node == o.Node {
			w = each
		}
	}
	c.mu.Unlock()
	if w == nil {
		return Outcome{}, &Refusal{Reason: NoRun, Message: "no run is open on " + o.Node + ", so nothing of fenced keeps it off"}
	}
	ord := order{unfence: remediate.Order{Actor: o.Actor, Reason: o.Reason, At: time.Now().UTC()}, done: make(chan error, 1)}
	select {
	case w.orders <- ord:
	case <-w.gone:
		return Outcome{}, &Refusal{Reason: NoRun, Message: "the run on " + o.Node + " has just ended"}
	case <-ctx.Done():
		return Outcome{}, ctx.Err()
	}
	if err := <-ord.done; err != nil {
		return Outcome{}, err
	}
	c.emit(Event{Type: EventOrder, Node: o.Node, Run: w.id, Message: o.Actor + " unfences: " + o.Reason})
	return Outcome{Run: w.id}, nil
}

// Pause stops everything new and everything that can still be taken back, in
// one cluster or, with no name, in all. // I23
func (e *Engine) Pause(ctx context.Context, o Order) error {
	return e.changeScope(ctx, o, "pauses", func(s *state.Cluster) {
		s.Paused, s.PausedBy, s.PausedReason, s.PausedAt = true, o.Actor, o.Reason, time.Now().UTC()
	})
}

// Resume ends a pause; the quiet period follows.
func (e *Engine) Resume(ctx context.Context, o Order) error {
	return e.changeScope(ctx, o, "resumes", func(s *state.Cluster) {
		s.Paused, s.PausedBy, s.PausedReason, s.PausedAt = false, "", "", time.Time{}
		s.ResumedAt = time.Now().UTC()
	})
}

// changeScope changes one cluster's record, or that of all.
func (e *Engine) changeScope(ctx context.Context, o Order, verb string, f func(*state.Cluster)) error {
	ev := Event{Type: EventOrder, Cluster: o.Cluster, Message: o.Actor + " " + verb + ": " + o.Reason}
	if o.Cluster != "" {
		c, err := e.cluster(o.Cluster)
		if err == nil {
			err = c.change(ctx, f)
		}
		if err == nil {
			e.opt.Events.Emit(ev)
		}
		return err
	}
	e.mu.Lock()
	next := e.global
	e.mu.Unlock()
	f(&next)
	saved, err := state.SaveCluster(ctx, e.opt.Store, next)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.global = saved
	e.mu.Unlock()
	e.opt.Events.Emit(ev)
	for _, c := range e.clusters {
		c.mu.Lock()
		c.quiet = later(c.quiet, saved.ResumedAt.Add(e.opt.Guards.QuietPeriod))
		c.mu.Unlock()
		c.wake()
	}
	return nil
}

// Arm lets an observing cluster act on its own judgement; Disarm takes that
// back. A cluster whose file says evaluate needs no arming.
func (e *Engine) Arm(ctx context.Context, o Order, armed bool) error {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return err
	}
	verb := map[bool]string{true: "arms", false: "disarms"}[armed]
	err = c.change(ctx, func(s *state.Cluster) {
		s.Armed, s.ArmedBy, s.ArmedReason, s.ArmedAt = armed, o.Actor, o.Reason, time.Now().UTC()
	})
	if err == nil {
		c.emit(Event{Type: EventOrder, Message: o.Actor + " " + verb + ": " + o.Reason})
	}
	return err
}
