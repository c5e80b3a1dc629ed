package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// Arming arms and disarms the clusters in mode observe.
type Arming struct{ e *Engine }

// Arm lets fenced act, without orders, in a cluster in mode observe. The quiet period begins then:
// Outcome.Until is its end. A cluster that is armed, or that is in another mode, stays as it is,
// and so does every cluster in a dry run. // I16
func (a Arming) Arm(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, err := a.cluster(o)
	if err != nil {
		return order.Outcome{}, err
	}
	switch {
	case c.opt.Mode != guard.ModeObserve:
		return order.Outcome{Unchanged: "cluster " + c.opt.Name + " is in mode " + c.opt.Mode + ", which needs no arming"}, nil
	case c.admit.Armed():
		return order.Outcome{Unchanged: "cluster " + c.opt.Name + " is armed already, by " + a.e.stop.Record(c.opt.Name).ArmedBy}, nil
	case o.DryRun:
		return order.Outcome{}, nil
	}
	at := time.Now().UTC()
	c.view.BeQuiet(at) // before the order is seen: whoever sees it sees the quiet period as well
	if err := a.store(ctx, c, o, true, at); err != nil {
		return order.Outcome{}, err
	}
	c.emit(o.Event("arms"))
	return order.Outcome{Until: c.view.QuietUntil()}, nil
}

// Disarm undoes Arm. It stops no other mode than observe, so it is refused there; what Arm stored
// is removed all the same, so that a later start in mode observe acts on nothing.
func (a Arming) Disarm(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, err := a.cluster(o)
	if err != nil {
		return order.Outcome{}, err
	}
	stored := a.e.stop.Record(c.opt.Name).Armed
	if stored {
		if err := a.store(ctx, c, o, false, time.Now().UTC()); err != nil {
			return order.Outcome{}, err
		}
		c.emit(o.Event("disarms"))
	}
	switch {
	case c.opt.Mode != guard.ModeObserve && stored:
		return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused,
			Message: "cluster " + c.opt.Name + " is in mode " + c.opt.Mode + ", which disarm does not stop: it is disarmed only for mode observe"}
	case c.opt.Mode != guard.ModeObserve:
		return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused,
			Message: "cluster " + c.opt.Name + " is in mode " + c.opt.Mode + ", which disarm does not stop: nothing changed"}
	case !stored:
		return order.Outcome{Unchanged: "cluster " + c.opt.Name + " is not armed"}, nil
	}
	return order.Outcome{}, nil
}

// Plan is what would be done in a cluster as soon as it is armed and the quiet period is over.
func (a Arming) Plan(ctx context.Context, cluster string) (admit.Plan, error) {
	c, err := a.e.cluster(cluster)
	if err != nil {
		return admit.Plan{}, err
	}
	return c.admit.Plan(ctx, true)
}

// clusterParts is the cluster of an order that only its owner carries out.
func (a Arming) cluster(o wire.Order) (*clusterParts, error) {
	c, err := a.e.cluster(o.Cluster)
	if err != nil {
		return nil, err
	}
	return c, c.lead.Refuse()
}

func (a Arming) store(ctx context.Context, c *clusterParts, o wire.Order, armed bool, at time.Time) error {
	return a.e.stop.Change(ctx, c.opt.Name, func(s *state.Cluster) {
		s.Armed, s.ArmedBy, s.ArmedReason, s.ArmedAt = armed, o.Actor, o.Reason, at
	})
}
