package engine

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

// keepAnnounced tells the cluster who acts on it, as long as this instance might.
func (c *cluster) keepAnnounced(ctx context.Context, t *leadership) {
	tick := time.NewTicker(announceRetry)
	defer tick.Stop()
	var next time.Time
	var news contest
	for {
		if now := time.Now(); c.mayAct() && !now.Before(next) {
			next = now.Add(announceRetry)
			if c.announceOnce(ctx, t, now) {
				next = now.Add(announceEvery)
			}
			news = c.tellContested(t, news)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.stir:
		}
	}
}

// mayAct says whether there is anything that this instance could do to the cluster:
// one that is only observed belongs to whoever acts on it.
func (c *cluster) mayAct() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed() {
		return true
	}
	for _, r := range c.runs {
		if r.Open() {
			return true
		}
	}
	return false
}

// announceOnce says whether the Lease is ours now.
func (c *cluster) announceOnce(ctx context.Context, t *leadership, now time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	binds, foreign, err := c.opt.Kube.Announce(ctx, Announcement{Instance: c.e.opt.Instance, StoreID: c.e.opt.StoreID, Epoch: t.claim.Epoch})
	t.notice.note(now, binds, foreign, err)
	return err == nil && foreign == ""
}

// contest is what is known of other installations, and whether a bad answer was told.
type contest struct {
	answer remediate.Answer
	told   bool
}

// tellContested tells when it begins or ceases to be true that nothing hurting may
// be done here.
func (c *cluster) tellContested(t *leadership, last contest) contest {
	answer, why := t.notice.contested(time.Now())
	bad := answer != remediate.No
	if answer != last.answer {
		c.wake()
	}
	switch {
	case bad && (!last.told || answer != last.answer):
		c.emit(event.Event{Type: event.Refused, Reason: string(reason.NotOwner), Message: why})
	case !bad && last.told:
		c.emit(event.Event{Type: event.OwnerChanged, Message: "nobody else acts on the cluster any more"})
	}
	return contest{answer, bad}
}

// foreignOwner says why this instance must not begin anything in the cluster; ""
// when it may.
func (c *cluster) foreignOwner(now time.Time) string {
	t := c.leadership.Load()
	if t == nil {
		return c.notOurs()
	}
	if !c.mayAct() {
		return "" // another gate forbids it
	}
	_, why := t.notice.contested(now)
	return why
}

// ownerSource is what says whose the cluster is; "" where that is the Lease.
func (c *cluster) ownerSource() string {
	if c.leadership.Load() == nil {
		return "store"
	}
	return ""
}

// contested is what a run asks about other installations of fenced.
func (c *cluster) contested(now time.Time) (remediate.Answer, string) {
	if t := c.leadership.Load(); t != nil {
		return t.notice.contested(now)
	}
	return remediate.CannotTell, c.notOurs()
}

// alsoContested adds that to what a look found of other remediators. // I22
func (c *cluster) alsoContested(s *remediate.Observation, now time.Time) {
	answer, who := c.contested(now)
	switch {
	case answer == remediate.Yes, answer == remediate.CannotTell && s.Contested == remediate.No:
		s.Contested, s.Contender = answer, who
	}
}
