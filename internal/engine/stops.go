package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
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
	out.Unseen = !c.sees(o.Node)
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

// sees says whether a Node of that name, or something that will have it, is known.
func (c *cluster) sees(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runs {
		if r.Open() && r.Target.Node == node {
			return true
		}
	}
	return c.judged && (c.ledger.Node(node) != nil || c.ledger.MachineOf(node) != nil)
}

// stopped is what people's stops bind: the deciding loop, and each run.
type stopped struct{ c *cluster }

// Clock implements stop.Cluster.
func (s stopped) Clock() (skew time.Duration, seen bool) {
	v := s.c.view()
	if s.c.skewed(v) == "" {
		return 0, v.Synced
	}
	return v.Skew, v.Synced
}

// BeQuiet implements stop.Cluster. // I16
func (s stopped) BeQuiet(from time.Time) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.quiet = later(s.c.quiet, from.Add(s.c.e.opt.Guards.QuietPeriod))
}

// Wake implements stop.Cluster.
func (s stopped) Wake() {
	s.c.wake()
	s.c.runner.Kick()
}

// trip quarantines a host whose runs of a day are used up and that is asked for once
// more. // I15
func (c *cluster) trip(ctx context.Context, a candidate, g reason.Gate, now time.Time) {
	if node := a.draft.Target.Node; !g.Pass && g.Reason == reason.FencesPerDay && node != "" {
		c.e.stop.Quarantine(ctx, c.opt.Name, node, g.Value, now)
	}
}

// record is what people ordered for the cluster, as it was last stored.
func (c *cluster) record() state.Cluster { return c.e.stop.Record(c.opt.Name) }

// armed says whether fenced acts on its own judgement here.
func (c *cluster) armed() bool { return actsAlone(c.opt.Mode, c.record()) }
