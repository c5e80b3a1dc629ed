package fake

import (
	"time"

	"github.com/fenced/fenced/internal/lead"
)

// FencedLease is the Lease that says who fences in the cluster.
type FencedLease struct {
	Held    lead.Announcement
	By      any // nil: another installation
	Renewed time.Time
	Foreign string // who holds it for ever; empty: nobody
	Fails   error  // each call
	Last    lead.Announcement

	calls int
}

// LeaseDuration is how long an announcement keeps others away.
const LeaseDuration = 15 * time.Second

// Announce takes or renews the Lease for somebody. A holder of another store is given
// way while its Lease has not stood still for its duration.
func (s *State) Announce(by any, a lead.Announcement) (binds time.Duration, foreign string) {
	l := &s.Fenced
	switch {
	case l.Foreign != "":
		return 0, l.Foreign
	case l.Held.Instance == "", l.By == by, time.Since(l.Renewed) > LeaseDuration,
		l.Held.StoreID == a.StoreID && (l.Held.Epoch < a.Epoch || l.Held.Instance == a.Instance):
		s.next()
		l.Held, l.By, l.Renewed = a, by, time.Now()
		return LeaseDuration, ""
	}
	return 0, l.Held.Instance + " of store " + l.Held.StoreID
}
