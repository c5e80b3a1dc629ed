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
	announceEvery = 5 * time.Second
	announceRetry = time.Second      // after it failed
	announceTime  = 10 * time.Second // one try
)

// Announcer takes or renews the Lease in the cluster that says who acts there, and says
// how long that binds others from the moment of the call. While somebody else holds it,
// it writes nothing and says who.
type Announcer interface {
	Announce(ctx context.Context, a Announcement) (binds time.Duration, foreign string, err error)
}

// Announcement says who is about to act on a cluster.
type Announcement struct {
	Instance string
	StoreID  string
	Epoch    uint64
}

// leaseStatus is what came of telling the cluster who acts on it: another installation of
// fenced, with a store of its own, can know by nothing else.
type leaseStatus struct {
	mu      sync.Mutex
	end     time.Time // others stay away until then
	foreign string    // who else holds the Lease
	problem string    // why it could not be taken
}

// until is how long nobody else acts on the cluster, or why somebody may.
func (n *leaseStatus) until(now time.Time) (end time.Time, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if answer, why := n.judge(now); answer != remediate.No { // in one stroke with the end // I22
		return time.Time{}, why
	}
	return n.end, ""
}

// contested says whether another installation acts on the cluster, and which.
func (n *leaseStatus) contested(now time.Time) (remediate.Answer, string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.judge(now)
}

// judge is contested while n.mu is held.
func (n *leaseStatus) judge(now time.Time) (remediate.Answer, string) {
	switch {
	case n.foreign != "":
		return remediate.Yes, n.foreign
	case now.Before(n.end):
		return remediate.No, ""
	case n.problem != "":
		return remediate.CannotTell, "who else acts on the cluster is not known: " + n.problem
	}
	return remediate.CannotTell, "who else acts on the cluster was not asked yet"
}

// note takes in the outcome of one announcement that was begun at a time. Others stay
// away as long as it says that it binds them. // I22
func (n *leaseStatus) note(at time.Time, binds time.Duration, foreign string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil:
		n.problem = err.Error() // what was known stands until it is over
	case foreign != "":
		n.end, n.foreign, n.problem = time.Time{}, foreign, ""
	default:
		n.end, n.foreign, n.problem = at.Add(binds), "", ""
	}
}

// runLease keeps the cluster's Lease, as long as this instance might act.
func (l *Lead) runLease(ctx context.Context, t *Leadership) {
	tick := time.NewTicker(announceRetry)
	defer tick.Stop()
	var next time.Time
	var last contest
	for {
		if now := time.Now(); l.opt.Cluster.MayAct() && !now.Before(next) {
			next = now.Add(announceRetry)
			if l.announce(ctx, t, now) {
				next = now.Add(announceEvery)
			}
			last = l.reportContested(t, last)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.stir:
		}
	}
}

// Stir makes the Lease be taken soon where there was no reason to before.
func (l *Lead) Stir() {
	select {
	case l.stir <- struct{}{}:
	default:
	}
}

// announce says whether the Lease is ours now.
func (l *Lead) announce(ctx context.Context, t *Leadership, now time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	binds, foreign, err := l.opt.Announcer.Announce(ctx, Announcement{Instance: l.opt.Instance, StoreID: l.opt.StoreID, Epoch: t.claim.Epoch})
	t.lease.note(now, binds, foreign, err)
	return err == nil && foreign == ""
}

// contest is what is known of other installations, and whether a bad answer was told.
type contest struct {
	answer remediate.Answer
	told   bool
}

// reportContested reports when it begins or ceases to be true that nothing destructive
// may be done here.
func (l *Lead) reportContested(t *Leadership, last contest) contest {
	answer, why := t.lease.contested(time.Now())
	bad := answer != remediate.No
	if answer != last.answer {
		l.opt.Cluster.Wake()
	}
	switch {
	case bad && (!last.told || answer != last.answer):
		l.emit(event.Refused, reason.NotOwner, why)
	case !bad && last.told:
		l.emit(event.OwnerChanged, "", "nobody else acts on the cluster any more")
	}
	return contest{answer, bad}
}
