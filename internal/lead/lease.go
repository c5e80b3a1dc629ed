package lead

import (
	"context"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	announceEvery   = 5 * time.Second
	announceRetry   = time.Second      // after it failed
	announceTimeout = 10 * time.Second // of one attempt
)

// Announcer takes or renews the Lease in the cluster that names who acts there.
type Announcer interface {
	// Announce returns for how long after the call the Lease keeps others from acting. If
	// another installation holds the Lease, Announce writes nothing, and foreign says who does.
	Announce(ctx context.Context, a Announcement) (binds time.Duration, foreign string, err error)
	// Holder reads the Lease and writes nothing. foreign says which other installation holds it; "" if none does.
	Holder(ctx context.Context, a Announcement) (foreign string, err error)
}

// Announcement names who is about to act on a cluster.
type Announcement struct {
	Instance string
	StoreID  string
	Epoch    uint64
}

// leaseStatus is the result of the announcements to one cluster. Another installation of fenced has
// a store of its own, so it knows of this one only by the Lease.
type leaseStatus struct {
	mu      sync.Mutex
	end     time.Time // others do not act until then
	foreign string    // who else holds the Lease
	problem string    // why it could not be taken
}

// known answers whether another installation acts on the cluster, and which. If none does, why is
// "", and none will until end. All of it is known at one moment. // I22
func (n *leaseStatus) known(now time.Time) (end time.Time, answer remediate.Answer, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.foreign != "":
		return end, remediate.Yes, n.foreign
	case now.Before(n.end):
		return n.end, remediate.No, ""
	case n.problem != "":
		return end, remediate.CannotTell, "who else acts on the cluster is not known: " + n.problem
	}
	return end, remediate.CannotTell, "who else acts on the cluster was not asked yet"
}

// note records the result of an announcement that began at a time. Others do not act for as long as
// it binds them. // I22
func (n *leaseStatus) note(at time.Time, binds time.Duration, foreign string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil:
		n.problem = err.Error() // what is known stays true until its end
	case foreign != "":
		n.end, n.foreign, n.problem = time.Time{}, foreign, ""
	default:
		n.end, n.foreign, n.problem = at.Add(binds), "", ""
	}
}

// noteHolder records who holds the Lease, read by an instance that does not take it.
func (n *leaseStatus) noteHolder(foreign string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.foreign = foreign; foreign != "" {
		n.end = time.Time{}
	}
}

// holder is which other installation holds the Lease, "" if none is known to.
func (n *leaseStatus) holder() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.foreign
}

// runLease takes and renews the cluster's Lease, as long as this instance may act. Otherwise it only reads who
// holds it, so that a dry run, a plan and the order to arm get the answer that an order to fence would get.
func (l *Lead) runLease(ctx context.Context, t *Leadership) {
	tick := time.NewTicker(announceRetry)
	defer tick.Stop()
	var next, read time.Time
	var last contest
	for {
		switch now := time.Now(); {
		case !l.opt.Cluster.MayAct():
			if !now.Before(read) {
				read = now.Add(announceEvery)
				l.readHolder(ctx, t)
				last = l.reportContested(t, last)
			}
		case !now.Before(next):
			next = now.Add(announceRetry)
			asking, cancel := context.WithTimeout(ctx, announceTimeout)
			binds, foreign, err := l.opt.Announcer.Announce(asking, Announcement{Instance: l.opt.Instance, StoreID: l.opt.StoreID, Epoch: t.claim.Epoch})
			cancel()
			t.lease.note(now, binds, foreign, err)
			if err == nil && foreign == "" { // this instance holds it now
				next = now.Add(announceEvery)
			}
			last = l.reportContested(t, last)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.leaseWanted:
		}
	}
}

// readHolder reads who holds the Lease. After an error what was known stays.
func (l *Lead) readHolder(ctx context.Context, t *Leadership) {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	if foreign, err := l.opt.Announcer.Holder(ctx, Announcement{Instance: l.opt.Instance, StoreID: l.opt.StoreID, Epoch: t.claim.Epoch}); err == nil {
		t.lease.noteHolder(foreign)
	}
}

// TakeLeaseSoon makes runLease take the Lease soon. Call it when this instance becomes allowed to act.
func (l *Lead) TakeLeaseSoon() {
	select {
	case l.leaseWanted <- struct{}{}:
	default:
	}
}

// contest is what is known about other installations, and whether that was reported as a reason not
// to act.
type contest struct {
	answer   remediate.Answer
	reported bool
}

// reportContested reports when another installation begins or ceases to keep this one from doing
// anything destructive.
func (l *Lead) reportContested(t *Leadership, last contest) contest {
	_, answer, why := t.lease.known(time.Now())
	bad := answer == remediate.Yes || answer == remediate.CannotTell && l.opt.Cluster.MayAct() // who only observes need not know
	if answer != last.answer {
		l.opt.Cluster.Wake()
	}
	switch {
	case bad && (!last.reported || answer != last.answer):
		l.emit(event.Refused, reason.NotOwner, why)
	case !bad && last.reported:
		l.emit(event.OwnerChanged, "", "nobody else acts on the cluster any more")
	}
	return contest{answer, bad}
}
