package admit

import (
	"maps"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// leasesKept is how long the version of a Lease is remembered that nobody reads any more.
const leasesKept = time.Hour

// leasesSeen are the versions of kubelets' Leases that this process has read, by Node. The times in
// a Lease are those of whoever wrote it. When its version changed is by the clock of this process. // I4
type leasesSeen struct {
	mu     sync.Mutex
	byNode map[string]leaseSeen
}

// leaseSeen is one version of a Lease. It was first read at since, and last in a look that began at
// read. An earlier version was last read in a look that began at before; zero: none was.
type leaseSeen struct {
	version             string
	since, read, before time.Time
}

func newLeasesSeen() *leasesSeen { return &leasesSeen{byNode: map[string]leaseSeen{}} }

// note adds what a look that began at a time has read of a Node's Lease. It returns the Lease with the times at
// which its versions were read.
func (s *leasesSeen) note(node string, l remediate.Lease, began, now time.Time) policy.Lease {
	if !l.Known || l.ResourceVersion == "" {
		return policy.Lease{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.byNode[node]
	switch {
	case !known:
		maps.DeleteFunc(s.byNode, func(_ string, other leaseSeen) bool { return now.Sub(other.read) > leasesKept })
		seen = leaseSeen{version: l.ResourceVersion, since: now}
	case seen.version != l.ResourceVersion && !began.Before(seen.read): // else it is the answer of a slower look
		seen = leaseSeen{version: l.ResourceVersion, since: now, before: seen.read}
	}
	if began.After(seen.read) {
		seen.read = began
	}
	s.byNode[node] = seen
	return policy.Lease{RenewTime: l.RenewTime, Since: seen.since, Before: seen.before}
}
