package engine

import (
	"context"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// Fence starts a run on one Node or Machine. It skips the limit of the check, the waits and the rates,
// and no other gate. A refusal is a *reason.Refusal.
func (e *Engine) Fence(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	return c.admit.Fence(ctx, o)
}

// ConfirmOff accepts a manual confirmation, in place of a proof, that a Node's host is off
// and cannot come on. // I26
func (e *Engine) ConfirmOff(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	return c.admit.ConfirmOff(ctx, o)
}

// Retry continues a run that is Waiting or Held, or that rests before its next attempt.
func (e *Engine) Retry(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, r, err := e.withRun(o)
	if err != nil {
		return order.Outcome{}, err
	}
	return c.admit.Retry(ctx, o, r)
}

// Unfence brings the host of an open run back: it aborts the run if the Node is not isolated
// yet, and powers the host on otherwise. It returns when the order is durable.
func (e *Engine) Unfence(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	r, open := c.model.OpenOn(o.Of())
	if !open {
		return order.Outcome{}, &reason.Refusal{Reason: reason.NoRun, Message: "no run is open on " + o.Of() + ", so fenced does not keep it off; if the host is off, power it on at its BMC"}
	}
	return c.admit.Order(ctx, r.ID, o, "unfences", func(r remediate.Run) (remediate.Run, error) {
		r.Unfence = o.ForRecord()
		return r, nil
	})
}

// Abort ends a run. Before the isolation its host is powered on again; after the isolation
// the run is completed. With AsIs a Waiting or Held run ends, and its host stays as it is.
// A record of another remediator is given up.
func (e *Engine) Abort(ctx context.Context, o wire.Order) (order.Outcome, error) {
	if c, r := e.asked.named(o); c != nil {
		return c.giveUp(ctx, o, r)
	}
	c, _, err := e.withRun(o)
	if err != nil {
		return order.Outcome{}, err
	}
	return c.admit.Order(ctx, o.Run, o, "aborts", func(r remediate.Run) (remediate.Run, error) {
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
func (e *Engine) withRun(o wire.Order) (*clusterParts, remediate.Run, error) {
	for _, c := range e.clusters.All() {
		if o.Cluster != "" && o.Cluster != c.opt.Name {
			continue
		}
		r, known := c.model.Run(o.Run)
		switch {
		case !known:
			continue
		case !r.Open():
			return nil, r, &reason.Refusal{Reason: reason.NoRun, Message: "run " + o.Run + " has ended: " + string(r.Step)}
		}
		return c, r, nil
	}
	return nil, remediate.Run{}, &reason.Refusal{Reason: reason.NoSuchRun, Message: "there is no run " + o.Run + "; fencectl history lists the runs"}
}
