package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/state"
)

// Pause stops everything new and everything that can still be taken back, in
// one cluster or, with no name, in all. It binds at once, whatever the store does. // I23
func (e *Engine) Pause(ctx context.Context, o order.Order) (order.Outcome, error) {
	if err := e.knows(o.Cluster); err != nil {
		return order.Outcome{}, err
	}
	return e.stop.Pause(ctx, o), nil
}

// Resume ends a pause; the quiet period follows. It does not remove the pause
// file: Outcome.Still says what pauses on.
func (e *Engine) Resume(ctx context.Context, o order.Order) (order.Outcome, error) {
	if err := e.knows(o.Cluster); err != nil {
		return order.Outcome{}, err
	}
	return e.stop.Resume(ctx, o)
}

// knows refuses the name of a cluster that is not configured; none means all.
func (e *Engine) knows(cluster string) error {
	if cluster == state.AllClusters {
		return nil
	}
	_, err := e.cluster(cluster)
	return err
}

// Hold keeps one Node from being fenced. It binds at once, whatever the store does;
// the Node need not be seen. Nothing that is there is shortened. // I23
func (e *Engine) Hold(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	o.Cluster = c.opt.Name
	out := e.stop.Hold(ctx, o)
	_, open := c.book.OpenOn(o.Node)
	_, known := c.book.TargetOn(o.Node)
	out.Unseen = !open && !(known && c.book.Seen())
	return out, nil
}

// ReleaseHold ends the hold of a Node by people or, where there is none, its quarantine:
// one of them, so that who ends his own hold does not let the host be fenced again.
func (e *Engine) ReleaseHold(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	o.Cluster = c.opt.Name
	return e.stop.Release(ctx, o)
}

// Holds lists the active holds and quarantines in a cluster, by Node; a quarantine
// comes after the hold of the same Node.
func (e *Engine) Holds(cluster string) []state.Hold { return e.stop.Holds(cluster) }

// stopped is what people's stops bind: the deciding loop, and each run.
type stopped struct{ c *cluster }

// Clock implements stop.Cluster.
func (s stopped) Clock() (skew time.Duration, seen bool) { return s.c.view.Skew() }

// BeQuiet implements stop.Cluster. // I16
func (s stopped) BeQuiet(from time.Time) { s.c.view.BeQuiet(from) }

// Wake implements stop.Cluster.
func (s stopped) Wake() {
	s.c.admit.Wake()
	s.c.admit.Runner.Kick()
}
