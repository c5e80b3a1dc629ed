package escalate

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// locks are the Leases on the Nodes for which another remediator is asked, in a cluster that has
// such Leases (medik8s). The controller of a NodeHealthCheck holds the Lease for the remediator while its
// request exists, and fenced does so in its place: whoever would drain or repair the Node keeps away. // I22
type locks struct {
	kube run.Kube
	held map[string]lease // by the ID of the record
}

// lease is a Lease that this process has taken, or may have.
type lease struct {
	run  remediate.Run // as whose it is held
	next time.Time     // of the next renewal
}

// lockEvery is the time between two renewals of a Lease on a Node.
const lockEvery = time.Minute

// take takes or renews the Lease for the record of a request. An error says that fenced may not hold
// it; it is a *reason.Refusal if somebody else does.
func (l *locks) take(ctx context.Context, r Record) error {
	if r.Target.Node == "" {
		return nil
	}
	as := remediate.Run{ID: r.ID, Target: r.Target, Step: remediate.PowerOff} // take it, do not only renew it
	began := time.Now()
	binds, foreign, err := l.kube.LockNode(ctx, as)
	switch {
	case foreign != "":
		delete(l.held, r.ID)
		return &reason.Refusal{Reason: reason.Contested, Message: foreign}
	case err != nil:
		l.held[r.ID] = lease{run: as} // it may have been written
		return fmt.Errorf("keep other remediators away from Node %s: %w", r.Target.Node, err)
	}
	l.held[r.ID] = lease{as, began.Add(lockEvery)}
	if binds > 0 {
		l.held[r.ID] = lease{as, began.Add(min(lockEvery, binds/2))}
	}
	return nil
}

// renew renews the Lease while the object of a record may exist.
func (l *locks) renew(ctx context.Context, r Record) error {
	if time.Now().Before(l.held[r.ID].next) {
		return nil
	}
	return l.take(ctx, r)
}

// giveBack gives the Lease back. After a restart nobody knows of it any more, and it expires by itself.
func (l *locks) giveBack(ctx context.Context, id string) error {
	if err := l.kube.UnlockNode(ctx, l.held[id].run); err != nil {
		return fmt.Errorf("let other remediators have Node %s again: %w", l.held[id].run.Target.Node, err)
	}
	delete(l.held, id)
	return nil
}

// lockAll renews the Leases of the records whose object may exist, and gives back those of the others.
// What fails delays nothing: the object is looked after all the same.
func (w *writer) lockAll(ctx context.Context) {
	blocking := map[string]bool{}
	for _, r := range w.c.records.All() {
		if r.Unreadable != "" || !r.Blocking() {
			continue
		}
		blocking[r.ID] = true
		w.try(ctx, "lock "+r.ID, r.Target, r.Check, "hold the Lease on the Node", func() error { return w.locks.renew(ctx, r) })
	}
	for id, l := range w.locks.held {
		if !blocking[id] {
			w.try(ctx, "unlock "+id, l.run.Target, id, "give the Lease on the Node back", func() error { return w.locks.giveBack(ctx, id) })
		}
	}
}
