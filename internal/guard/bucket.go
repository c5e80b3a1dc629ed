package guard

import (
	"slices"
	"time"
)

// Bucket is a token bucket that keeps no state of its own: it is refilled by looking
// at when the starts were that are on record, so that it survives whatever the record
// does. // I11
type Bucket struct {
	Burst   int // at once
	PerHour int // 0 = no limit
}

// Bucket is that of the starts in one cluster: as many at once as may be in flight.
func (l Limits) Bucket() Bucket {
	return Bucket{Burst: max(1, l.MaxInFlight), PerHour: l.StartsPerHour}
}

// Next is the earliest time at which one more start is allowed, at once when that is
// not after now. In any stretch of time it allows no more starts than Burst and what
// PerHour adds over that time. A start that was not asked for here takes a token if
// there is one. A start that lies ahead, because the clock was set back since, counts
// as one of this moment: it gives no token back before its time.
func (b Bucket) Next(starts []time.Time, now time.Time) time.Time {
	if b.PerHour <= 0 {
		return now
	}
	every := (time.Hour + time.Duration(b.PerHour) - 1) / time.Duration(b.PerHour) // rounded up: never faster
	full := time.Duration(max(1, b.Burst)) * every
	counted := make([]time.Time, 0, len(starts))
	for _, s := range starts {
		counted = append(counted, earlier(s, now))
	}
	slices.SortFunc(counted, time.Time.Compare)
	var refilled time.Time // when the bucket is full again
	for _, s := range counted {
		if refilled.Before(s) {
			refilled = s
		}
		refilled = earlier(refilled.Add(every), s.Add(full)) // an empty bucket gets no emptier
	}
	return refilled.Add(every - full)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
