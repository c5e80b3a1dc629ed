package fake

import (
	"time"

	"github.com/fenced/fenced/internal/lead"
)

// FencedLease is the Lease of the instance that fences in the cluster.
type FencedLease struct {
	Held    lead.Announcement
	By      any // nil: another installation
	Renewed time.Time
	Foreign string // the holder, for ever; empty: none
	Fails   error  // the error of each call
	Last    lead.Announcement

	calls int
}

// LeaseDuration is how long an announcement is valid.
const LeaseDuration = 15 * time.Second

// Holder is who keeps an instance from the Lease; "" for nobody.
func (s *State) Holder(by any, a lead.Announcement) (foreign string) {
	l := &s.Fenced
	switch {
	case l.Foreign != "":
		return l.Foreign
	case l.Held.Instance == "", l.By == by, time.Since(l.Renewed) > LeaseDuration,
		l.Held.StoreID == a.StoreID && (l.Held.Epoch < a.Epoch || l.Held.Instance == a.Instance):
		return ""
	}
	return l.Held.Instance + " of store " + l.Held.StoreID
}

// Announce takes or renews the Lease for an instance. An instance with another
// store gets it only after its holder has not renewed it for its duration.
func (s *State) Announce(by any, a lead.Announcement) (binds time.Duration, foreign string) {
	if foreign = s.Holder(by, a); foreign != "" {
		return 0, foreign
	}
	s.next()
	s.Fenced.Held, s.Fenced.By, s.Fenced.Renewed = a, by, time.Now()
	return LeaseDuration, ""
}
