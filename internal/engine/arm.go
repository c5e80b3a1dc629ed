package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/state"
)

// Arm lets fenced act, without orders, in a cluster in mode observe. The quiet period begins then:
// Outcome.Until is its end. A cluster that is armed, or that is in another mode, stays as it is,
// and so does every cluster in a dry run. // I16
func (e *Engine) Arm(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.orderedCluster(o)
	if err != nil {
		return order.Outcome{}, err
	}
	switch {
	case c.opt.Mode != guard.ModeObserve:
		return order.Outcome{Unchanged: "cluster " + c.opt.Name + " is in mode " + c.opt.Mode + ", which needs no arming"}, nil
	case c.admit.Armed():
		return order.Outcome{Unchanged: "cluster " + c.opt.Name + " is armed already, by " + e.stop.Record(c.opt.Name).ArmedBy}, nil
	case o.DryRun:
		return order.Outcome{}, nil
	}
	at := time.Now().UTC()
	c.view.BeQuiet(at) // before the order is seen: whoever sees it sees the quiet period as well
	if err := e.setArmed(ctx, c, o, true, at); err != nil {
		return order.Outcome{}, err
	}
	c.emit(o.Event("arms"))
	return order.Outcome{Until: c.view.QuietUntil()}, nil
}

// Disarm undoes Arm.
func (e *Engine) Disarm(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.orderedCluster(o)
	if err != nil {
		return order.Outcome{}, err
	}
	if err := e.setArmed(ctx, c, o, false, time.Now().UTC()); err != nil {
		return order.Outcome{}, err
	}
	c.emit(o.Event("disarms"))
	return order.Outcome{}, nil
}

// PlanArmed is what would be done in a cluster as soon as it is armed and the quiet period is over.
func (e *Engine) PlanArmed(ctx context.Context, cluster string) (admit.Plan, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return admit.Plan{}, err
	}
	return c.admit.PlanArmed(ctx)
}

// orderedCluster is the cluster of an order that only its owner carries out.
func (e *Engine) orderedCluster(o order.Order) (*cluster, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return nil, err
	}
	return c, c.lead.Refuse()
}

func (e *Engine) setArmed(ctx context.Context, c *cluster, o order.Order, armed bool, at time.Time) error {
	return e.stop.Change(ctx, c.opt.Name, func(s *state.Cluster) {
		s.Armed, s.ArmedBy, s.ArmedReason, s.ArmedAt = armed, o.Actor, o.Reason, at
	})
}
