package admit

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/wire"
)

// Fence starts a run on one Node or Machine. It skips the limit of the check, the waits and the rates,
// and no other gate. A refusal is a *reason.Refusal.
func (c *Cluster) Fence(ctx context.Context, o wire.Order) (order.Outcome, error) {
	a, err := c.model.CandidateForOrder(o)
	if err != nil {
		return order.Outcome{}, err
	}
	for _, r := range c.model.Runs.Open() {
		if cluster.IsOn(&r, o.Of()) && r.OffOnly == o.OffOnly && !r.Step.Idle() && r.Strategy == remediate.PowerCycle {
			return order.Outcome{Run: r.ID, Joined: true}, nil
		}
	}
	if o.DryRun {
		return c.ByHand.dryRun(ctx, o, a)
	}
	defer c.ByHand.takeLease(ctx, a)()
	now := time.Now()
	gates := append(uncertainMachineGates(a), c.gates(a, nil, now)...)
	if g, refused := cluster.FirstFailing(gates); refused {
		return order.Outcome{Gates: gates}, reason.RefusalOf(g)
	}
	p := c.probes.probeForOrder(ctx, a.Draft, nil)
	now = time.Now()
	if again, err := c.model.CandidateForOrder(o); err == nil { // the cluster may have changed during the probe
		a.Doubt, a.MissingHost = again.Doubt, again.MissingHost
	}
	gates = append(uncertainMachineGates(a), c.gates(a, p, now)...)
	if g, refused := cluster.FirstFailing(gates); refused {
		if p.session != nil {
			p.session.Close(ctx)
		}
		return order.Outcome{Gates: gates}, reason.RefusalOf(g)
	}
	a.Gates = gates
	c.emit(o.Event("fences"))
	r, err := c.start(ctx, a, p.complete(c.model.Options.Draft, nil), p.session)
	if err != nil && p.session != nil {
		p.session.Close(ctx)
	}
	return order.Outcome{Run: r.ID, Gates: gates}, err
}

// uncertainMachineGates returns a failing gate if it is uncertain which Machine the Node
// belongs to: that Machine may forbid remediation, and may not be in the view. The gate's
// name "claim" is stable: it is shown in JSON.
func uncertainMachineGates(a cluster.Candidate) []reason.Gate {
	if a.Doubt == (policy.Doubt{}) {
		return nil
	}
	return []reason.Gate{{Name: "claim", Reason: a.Doubt.Reason, Value: a.Doubt.Message, Threshold: "a Machine of its own, or none", Source: "watch"}}
}

// Order passes an order to the worker of a run, and returns when it is durable.
func (c *Cluster) Order(ctx context.Context, id string, o wire.Order, verb string, change func(remediate.Run) (remediate.Run, error)) (order.Outcome, error) {
	r, _ := c.model.Runs.Get(id)
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

// Retry continues a run that is Waiting or Held, or that rests before its next attempt. It refuses the order if
// a gate would keep the run where it is: otherwise the run would drop the order silently.
func (c *Cluster) Retry(ctx context.Context, o wire.Order, r remediate.Run) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil {
		return order.Outcome{}, err
	}
	p := c.probes.lookForContenders(ctx, r)
	return c.Order(ctx, r.ID, o, "retries", func(r remediate.Run) (remediate.Run, error) {
		if may, why := remediate.CanRetry(r); !may {
			return r, &reason.Refusal{Reason: reason.OrderRefused, Message: why}
		}
		now := time.Now()
		if g, refused := cluster.FirstFailing(retryGates(c.gates(cluster.Candidate{Draft: r}, p, now))); refused {
			return r, reason.RefusalOf(g)
		}
		if why := c.runs.whyNotAsked(r, p, now); why != "" {
			return r, &reason.Refusal{Reason: reason.Withdrawn, Message: "another power cycle was not ordered: " + why + "; to fence the host all the same, run fencectl abort, then fencectl fence"}
		}
		r.Retry = o.ForRecord()
		return r, nil
	})
}

// retryGates selects the gates that prevent a run from continuing. // I5, I22, I23
func retryGates(gates []reason.Gate) []reason.Gate {
	return slices.DeleteFunc(gates, func(g reason.Gate) bool {
		switch g.Name {
		case "owner", "pause", "hold", "frozen", "target", "contested", "powerOwner", "nodeLease":
			return false
		}
		return true
	})
}

// whyNotAsked says why nobody asks any more for a run that a retry would let power-cycle its host: it
// would rest again at once. "": somebody does, or the retry only brings the host back. // I4
func (rc *runCluster) whyNotAsked(r remediate.Run, p *probe, now time.Time) string {
	if r.Manual != nil { // the retry renews the order
		renewed := *r.Manual
		renewed.At, r.Manual = now, &renewed
	}
	if withdrawn, why := rc.Withdrawn(r, p.look.Fresh, now); withdrawn == remediate.Yes && remediate.RetryCutsPower(r) {
		return why
	}
	return ""
}

const (
	// maxDryRuns bounds the dry runs of operators that ask BMCs of a cluster at the same time.
	maxDryRuns = 4
	// maxViewerDryRuns is the same of everybody who may only look. They have places of their own: no
	// operator waits for them.
	maxViewerDryRuns = 2
	// leaseWait is how long an order by hand waits until it is known who else acts on the cluster.
	leaseWait  = 5 * time.Second
	leaseCheck = 50 * time.Millisecond
)

// ByHand is what a cluster does for people who fence by hand, beside the run itself: dry runs, and
// the cluster's Lease in mode observe.
type ByHand struct {
	c             *Cluster
	dryRuns       *semaphore.Weighted
	viewerDryRuns *semaphore.Weighted
	orders        atomic.Int32 // of administrators in mode observe, that are being carried out
}

func newByHand(c *Cluster) *ByHand {
	return &ByHand{c: c, dryRuns: semaphore.NewWeighted(maxDryRuns), viewerDryRuns: semaphore.NewWeighted(maxViewerDryRuns)}
}

// Acts says whether an administrator's order is being carried out in mode observe. Meanwhile this
// instance must hold the cluster's Lease, as if it was armed. // I22
func (h *ByHand) Acts() bool { return h.orders.Load() > 0 }

// takeLease makes this instance take the cluster's Lease for an administrator's order in mode
// observe, in which nothing else takes it, and waits until nobody else acts there. If somebody
// does, or if that is not known, the gate "owner" refuses the order. The caller calls done when
// the order is carried out: then the open run keeps the Lease. // I22
func (h *ByHand) takeLease(ctx context.Context, a cluster.Candidate) (done func()) {
	c := h.c
	if c.opt.Mode != guard.ModeObserve || a.Draft.Manual == nil || !a.Draft.Manual.Admin || c.opt.Lead.WhyNot() != "" {
		return func() {}
	}
	h.orders.Add(1)
	c.opt.Lead.TakeLeaseSoon()
	for end := time.Now().Add(leaseWait); time.Now().Before(end); {
		if other, _ := c.opt.Lead.Contested(time.Now()); other == remediate.No {
			break
		}
		select {
		case <-ctx.Done():
			return func() { h.orders.Add(-1) }
		case <-time.After(leaseCheck):
		}
	}
	return func() { h.orders.Add(-1) }
}

// dryRun asks every gate about an order to fence, and the BMC, also after a gate has failed, and
// begins nothing. A refusal comes beside what was found.
func (h *ByHand) dryRun(ctx context.Context, o wire.Order, a cluster.Candidate) (order.Outcome, error) {
	c := h.c
	places := h.dryRuns
	if o.ByViewer() {
		places = h.viewerDryRuns
	}
	if err := places.Acquire(ctx, 1); err != nil {
		return order.Outcome{}, err
	}
	defer places.Release(1)
	gates := append(uncertainMachineGates(a), c.gates(a, nil, time.Now())...)
	var p *probe
	if !slices.ContainsFunc(gates, forbidsToAsk) {
		p = c.probes.probeForOrder(ctx, a.Draft, &probe{onlyLooks: o.ByViewer()})
		if p.hostError != "" { // the gates about the cluster are asked all the same
			c.probes.probeCluster(ctx, p)
		}
		if p.session != nil {
			p.session.Close(ctx)
		}
		gates = append(uncertainMachineGates(a), c.gates(a, p, time.Now())...)
	}
	out := order.Outcome{Gates: gates, Target: h.target(ctx, a, p)}
	if g, refused := cluster.FirstFailing(gates); refused {
		return out, reason.RefusalOf(g)
	}
	return out, nil
}

// forbidsToAsk says whether a failed gate means that somebody else has a session with the BMC.
func forbidsToAsk(g reason.Gate) bool {
	return !g.Pass && (g.Reason == reason.NotOwner || g.Reason == reason.UnderRemediation)
}

// target describes the target of an order to the person who gives it. p is its probe; nil:
// no BMC was asked.
func (h *ByHand) target(ctx context.Context, a cluster.Candidate, p *probe) *wire.OrderTarget {
	of := a.Draft.Target
	node := a.Node
	t := &wire.OrderTarget{Cluster: h.c.opt.Name, Node: of.Node, Machine: of.MachineKey()}
	if p != nil {
		of = p.draft.Target
		t.BMC = of.Address
		if p.look.Fresh.Node != nil {
			node = p.look.Fresh.Node
		}
		if p.hostError == "" {
			t.Identity, t.UUID = string(p.identity.Verdict), p.identity.BMC
		}
	}
	if node == nil {
		return t
	}
	for _, cond := range node.Conditions {
		if cond.Type == "Ready" {
			t.Ready, t.ReadySince = cond.Status, cond.LastTransition
		}
	}
	if list := h.c.opt.Pods; list != nil {
		pods, err := list(ctx, node.Name)
		if err != nil {
			t.PodsProblem = err.Error()
		} else {
			t.Pods = &pods
		}
	}
	return t
}
