package guard

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/times"
)

// Bucket is a token bucket without state of its own. It is computed from the
// recorded start times, so it survives whatever the record survives. // I11
type Bucket struct {
	Burst   int // starts allowed at once
	PerHour int // tokens added per hour; 0 means no limit
}

// Bucket is the token bucket for the starts of power cycles in one cluster. Its
// burst is MaxInFlight.
func (l Limits) Bucket() Bucket {
	return Bucket{Burst: max(1, l.MaxInFlight), PerHour: l.StartsPerHour}
}

// DeletionBucket is the token bucket for the runs in one cluster that delete a
// Machine. Its burst is MaxDeletions.
func (l Limits) DeletionBucket() Bucket {
	return Bucket{Burst: max(1, l.MaxDeletions), PerHour: l.DeletionsPerHour}
}

// Next returns the earliest time at which one more start is allowed; a time not
// after now means at once. In any period it allows no more starts than Burst plus
// what PerHour adds in that period. A start that happened without asking also
// takes a token if there is one. A start in the future, because the clock was set
// back, counts as now: it returns no token early.
func (b Bucket) Next(starts []time.Time, now time.Time) time.Time {
	if b.PerHour <= 0 {
		return now
	}
	every := (time.Hour + time.Duration(b.PerHour) - 1) / time.Duration(b.PerHour) // rounded up, so never faster than PerHour
	full := time.Duration(max(1, b.Burst)) * every
	counted := make([]time.Time, 0, len(starts))
	for _, s := range starts {
		counted = append(counted, times.Earlier(s, now))
	}
	slices.SortFunc(counted, time.Time.Compare)
	var refilled time.Time // when the bucket is full again
	for _, s := range counted {
		if refilled.Before(s) {
			refilled = s
		}
		refilled = times.Earlier(refilled.Add(every), s.Add(full)) // the bucket cannot get emptier than empty
	}
	return refilled.Add(every - full)
}
