// Package times compares instants and durations, and says when something is tried again, and how long a kubelet's Lease may
// last. It is pure.
package times

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Later returns the later of two instants; zero is before all others.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Earlier returns the earlier of two instants; zero is before all others.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Sooner returns the earlier of two instants at which something is due; zero means never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Quantile is the smallest of some durations that such a share of them does not exceed; 0 if there are none. A share of 0
// is that of the first.
func Quantile(all []time.Duration, share float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(1, int(math.Ceil(share*float64(len(sorted)))))-1]
}

// Backoff is when something that failed is tried again. The zero value says that the last try
// succeeded.
type Backoff struct {
	Next  time.Time // not before
	pause time.Duration
}

// NewBackoff returns the backoff that has such a pause until next.
func NewBackoff(next time.Time, pause time.Duration) Backoff { return Backoff{next, pause} }

// Pause returns the length of the pause.
func (b Backoff) Pause() time.Duration { return b.pause }

// Failing reports whether the last try failed.
func (b Backoff) Failing() bool { return b.pause > 0 }

// After returns the backoff after one more failure. The pause is first after the first one, and
// twice as long after each further one in a row, but at most most.
func (b Backoff) After(now time.Time, first, most time.Duration) Backoff {
	pause := min(max(2*b.pause, first), most)
	return Backoff{Next: now.Add(pause), pause: pause}
}

// LongestLease is the longest duration of a kubelet's Lease that fenced waits for. Kubelets use
// 40 s; with this one they renew every 75 s. // I5
const LongestLease = 5 * time.Minute

// LeaseTooLong says why nobody can wait until a kubelet has missed a renewal of a Lease of this
// duration; "" if that is possible. // I5
func LeaseTooLong(d time.Duration) string {
	if d <= LongestLease {
		return ""
	}
	return fmt.Sprintf("leaseDurationSeconds of the Node's Lease is %d; more than %d is not waited for",
		d/time.Second, LongestLease/time.Second)
}
