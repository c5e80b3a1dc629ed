package engine

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// Pause stops new runs, and open runs that can still be rolled back, in one cluster or, with
// no name, in all. It takes effect at once, even if the store does not answer. // I23
func (e *Engine) Pause(ctx context.Context, o wire.Order) (order.Outcome, error) {
	if err := e.checkClusterName(o.Cluster); err != nil {
		return order.Outcome{}, err
	}
	return e.stop.Pause(ctx, o), nil
}

// Resume ends a pause. A quiet period follows. It does not remove the pause file:
// Outcome.Still says which pauses remain.
func (e *Engine) Resume(ctx context.Context, o wire.Order) (order.Outcome, error) {
	if err := e.checkClusterName(o.Cluster); err != nil {
		return order.Outcome{}, err
	}
	return e.stop.Resume(ctx, o)
}

// checkClusterName refuses the name of a cluster that is not configured; "" means all.
func (e *Engine) checkClusterName(cluster string) error {
	if cluster == state.AllClusters {
		return nil
	}
	_, err := e.cluster(cluster)
	return err
}

// Hold prevents fencing of one Node or Machine. It takes effect at once, even if the store does
// not answer. The Node or Machine need not exist, but only so many of those can be held. A hold that lasts longer stays. // I23
func (e *Engine) Hold(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	o.Cluster = c.opt.Name
	out, err := e.stop.Hold(ctx, o, c.seenNames())
	if err != nil {
		return out, err
	}
	_, open := c.model.OpenOn(o.Of())
	out.Unseen = !open && !(c.isSeen(o.Of()) && c.model.Seen())
	return out, nil
}

// isSeen says whether fenced sees the Node of this name, or the Machine "namespace/name".
func (c *clusterParts) isSeen(name string) (seen bool) {
	if strings.Contains(name, "/") {
		_, seen = c.model.Objects().TargetOf(name)
	} else {
		_, seen = c.model.TargetOn(name)
	}
	return seen
}

// seenNames says which names fenced sees, or has a run of on record.
func (c *clusterParts) seenNames() func(name string) bool {
	ofRuns := sync.OnceValue(func() map[string]bool {
		names := map[string]bool{}
		for _, r := range c.model.Runs() {
			for _, name := range r.Target.Names() {
				names[name] = true
			}
		}
		return names
	})
	return func(name string) bool { return c.isSeen(name) || ofRuns()[name] }
}

// ReleaseHold ends the hold of a Node or, if there is none, its quarantine. It ends only one
// of them: a person who ends a hold does not end the quarantine unintentionally.
func (e *Engine) ReleaseHold(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	o.Cluster = c.opt.Name
	return e.stop.Release(ctx, o)
}

// Holds lists the active holds and quarantines in a cluster, by Node. A quarantine comes
// after the hold of the same Node.
func (e *Engine) Holds(cluster string) []state.Hold { return e.stop.Holds(cluster) }

// stopCluster implements stop.Cluster: stops apply to the deciding loop and to each run.
type stopCluster struct{ c *clusterParts }

// Clock implements stop.Cluster.
func (s stopCluster) Clock() (skew time.Duration, seen bool) { return s.c.view.Skew() }

// BeQuiet implements stop.Cluster. // I16
func (s stopCluster) BeQuiet(from time.Time) { s.c.view.BeQuiet(from) }

// Wake implements stop.Cluster.
func (s stopCluster) Wake() {
	s.c.admit.Wake()
	s.c.admit.Runner.Kick()
}
