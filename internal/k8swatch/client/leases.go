package client

import (
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
)

// LongestLeadership is how long a leader Lease of another controller counts at most once it stands still,
// whatever duration is written into it. Leaders use up to 270 s (OpenShift on one node). For a Lease of medik8s
// on a Node it is policy.LongestNodeLock.
const LongestLeadership = 5 * time.Minute

// LeaseClock says which Leases of other controllers are held. What counts is for how long this
// process has seen a Lease unchanged, by its own clock: whoever may write a Lease may write any time and any
// duration into it. // I22
type LeaseClock struct {
	mu    sync.Mutex
	byKey map[string]leaseVersion
}

// leaseVersion is the version of a Lease that was read last.
type leaseVersion struct {
	version     string
	renewed     time.Time // as it is written
	since, read time.Time // when this version was first and last read, by the clock of this process
	// renewing: it is a renewal of another version that was read while that was valid. The clock of the
	// holder may be wrong.
	renewing bool
}

func NewLeaseClock() *LeaseClock { return &LeaseClock{byKey: map[string]leaseVersion{}} }

// HeldUntil returns who holds a Lease and until when it is held at the most; "" if nobody holds it. server
// is the API server's time at now. The first time that a Lease is read, the times in it can say that it has
// expired; later they can only end it earlier. A Lease without them is held while it changes.
func (c *LeaseClock) HeldUntil(l *coordinationv1.Lease, longest time.Duration, server, now time.Time) (who string, until time.Time) {
	d, renewed := longest, time.Time{}
	if s := l.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		d = min(d, time.Duration(*s)*time.Second)
	}
	if l.Spec.RenewTime != nil {
		renewed = l.Spec.RenewTime.Time
	}
	seen := c.note(l, d, renewed, now)
	until = seen.since.Add(d)
	if expires := now.Add(renewed.Add(d).Sub(server)); !renewed.IsZero() && !seen.renewing && expires.Before(until) {
		until = expires
	}
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || !now.Before(until) { // a leader that stepped down leaves no holder
		return "", time.Time{}
	}
	return bmc.Printable(*l.Spec.HolderIdentity, policy.MaxHolder), until
}

// note remembers the version of a Lease.
func (c *LeaseClock) note(l *coordinationv1.Lease, d time.Duration, renewed, now time.Time) leaseVersion {
	key := string(l.UID) + " " + l.Namespace + "/" + l.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, known := c.byKey[key]
	if !known {
		maps.DeleteFunc(c.byKey, func(_ string, other leaseVersion) bool { return now.Sub(other.read) > 2*policy.LongestNodeLock })
	}
	if seen.version != l.ResourceVersion || !known {
		renewing := known && renewed.After(seen.renewed) && now.Sub(seen.read) <= d
		seen = leaseVersion{version: l.ResourceVersion, renewed: renewed, since: now, renewing: renewing}
	}
	seen.read = now
	c.byKey[key] = seen
	return seen
}

// HolderOf names who holds a Lease, in a sentence; "" if nobody does.
func (c *LeaseClock) HolderOf(l *coordinationv1.Lease, longest time.Duration, server, now time.Time) string {
	who, _ := c.HeldUntil(l, longest, server, now)
	if who == "" {
		return ""
	}
	return who + " holds the Lease " + l.Namespace + "/" + l.Name
}
