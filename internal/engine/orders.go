package engine

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/stop"
	"github.com/fenced/fenced/internal/wire"
)

// Fence starts a run on one Node or Machine. It skips the limit of the check, the waits and the rates,
// and no other gate. A refusal is a *reason.Refusal.
func (e *Engine) Fence(ctx context.Context, o wire.Order) (order.Outcome, error) {
	return inCluster(e, o.Cluster, func(c *clusterParts) (order.Outcome, error) { return c.admit.Fence(ctx, o) })
}

// ConfirmOff accepts a manual confirmation, in place of a proof, that a Node's host is off
// and cannot come on. // I26
func (e *Engine) ConfirmOff(ctx context.Context, o wire.Order) (order.Outcome, error) {
	return inCluster(e, o.Cluster, func(c *clusterParts) (order.Outcome, error) { return c.admit.ConfirmOff(ctx, o) })
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
	r, open := c.model.Runs.OpenOn(o.Of())
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
	if out, known, err := e.opt.Escalation.Abort(ctx, o); known {
		return out, err
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
		r, known := c.model.Runs.Get(o.Run)
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

// Hold prevents fencing of one Node or Machine, or of all Nodes with some labels. It takes effect at once, even if the store does
// not answer. The Node or Machine need not exist, but only so many of those can be held. A hold that lasts longer stays. // I23
func (e *Engine) Hold(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	o.Cluster = c.opt.Name
	if o.Group.IsGiven() {
		return c.orderGroup(ctx, o, stop.Group.Hold)
	}
	out, err := e.stop.Hold(ctx, o, c.seenNames())
	if err != nil {
		return out, err
	}
	r, open := c.model.Runs.OpenOn(o.Of())
	out.Run, out.Unseen = r.ID, !open && !(c.isSeen(o.Of()) && c.model.Objects.Seen())
	return out, nil
}

// isSeen says whether fenced sees the Node of this name, or the Machine "namespace/name".
func (c *clusterParts) isSeen(name string) (seen bool) {
	if strings.Contains(name, "/") {
		_, seen = c.model.Objects.TargetOf(name)
	} else {
		_, seen = c.model.Objects.TargetOn(name)
	}
	return seen
}

// seenNames says which names fenced sees, or has a run of on record.
func (c *clusterParts) seenNames() func(name string) bool {
	ofRuns := sync.OnceValue(func() map[string]bool {
		names := map[string]bool{}
		for _, r := range c.model.Runs.All() {
			for _, name := range r.Target.Names() {
				names[name] = true
			}
		}
		return names
	})
	return func(name string) bool { return c.isSeen(name) || ofRuns()[name] }
}

// ReleaseHold ends the hold of a Node or, if there is none, its quarantine. It ends only one
// of them: a person who ends a hold does not end the quarantine unintentionally. An order about labels ends the holds that
// orders with the same labels began.
func (e *Engine) ReleaseHold(ctx context.Context, o wire.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	o.Cluster = c.opt.Name
	if o.Group.IsGiven() {
		return c.orderGroup(ctx, o, stop.Group.Release)
	}
	return e.stop.Release(ctx, o)
}

// Holds lists the active holds and quarantines in a cluster, by Node. A quarantine comes
// after the hold of the same Node.
func (e *Engine) Holds(cluster string) []state.Hold { return e.stop.Holds(cluster) }

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
	unchanged := ""
	switch {
	case c.opt.Mode != guard.ModeObserve:
		unchanged = "cluster " + c.opt.Name + " is in mode " + c.opt.Mode + ", which needs no arming"
	case c.admit.Armed():
		unchanged = "cluster " + c.opt.Name + " is armed already, by " + a.e.stop.Record(c.opt.Name).ArmedBy
	}
	if unchanged != "" {
		if !o.DryRun {
			c.emit(o.Event("arms, although that changes nothing"))
		}
		return order.Outcome{Unchanged: unchanged}, nil
	}
	if why := c.lead.WhyNotAct(time.Now()); why != "" { // else it would be armed, and do nothing // I22
		return order.Outcome{}, &reason.Refusal{Reason: reason.NotOwner, Message: why}
	}
	if o.DryRun {
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
		c.emit(o.Event("disarms, although that changes nothing"))
		return order.Outcome{Unchanged: "cluster " + c.opt.Name + " is not armed"}, nil
	}
	return order.Outcome{}, nil
}

// Plan is what would be done in a cluster as soon as it is armed and the quiet period is over.
func (a Arming) Plan(ctx context.Context, cluster string) (admit.Plan, error) {
	return inCluster(a.e, cluster, func(c *clusterParts) (admit.Plan, error) { return c.admit.Plan(ctx, true) })
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
