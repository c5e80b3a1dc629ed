package admit

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

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
func (h *ByHand) takeLease(ctx context.Context, a candidate) (done func()) {
	c := h.c
	if c.opt.Mode != guard.ModeObserve || a.draft.Manual == nil || !a.draft.Manual.Admin || c.opt.Lead.WhyNot() != "" {
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
func (h *ByHand) dryRun(ctx context.Context, o order.Order, a candidate) (order.Outcome, error) {
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
		p = c.probes.probeForOrder(ctx, a.draft, &probe{onlyLooks: o.ByViewer()})
		if p.hostError != "" { // the gates about the cluster are asked all the same
			c.probes.probeCluster(ctx, p)
		}
		if p.session != nil {
			p.session.Close(ctx)
		}
		gates = append(uncertainMachineGates(a), c.gates(a, p, time.Now())...)
	}
	out := order.Outcome{Gates: gates, Target: h.target(ctx, a, p)}
	if g, refused := firstFailing(gates); refused {
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
func (h *ByHand) target(ctx context.Context, a candidate, p *probe) *order.Target {
	of := a.draft.Target
	node := a.node
	t := &order.Target{Cluster: h.c.opt.Name, Node: of.Node, Machine: of.MachineKey()}
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
