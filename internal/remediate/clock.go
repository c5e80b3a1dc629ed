package remediate

import (
	"slices"
	"time"
)

// The times of a record are those of the clock of whoever wrote it, and the next to read
// it may be another host, or the same one after its clock was set. What a wrong clock can
// do is bounded here: no deadline expires by one, and no wait goes on for ever. // I16, I20

// alignClock makes the times of a record comparable with now. One that is yet to come was
// written by a clock that was ahead, and counts from now. Where this host's clock does not
// agree with the API server's, or nobody has compared them, all that is waited for starts
// anew, with each such clock, and once more when a clock agrees again.
func alignClock(r Run, s Observation, now time.Time) Run {
	if wrong := s.Clock != Yes; wrong != r.WrongClock || wrong && s.ClockSet {
		r = mapTimes(r, func(time.Time) time.Time { return now })
		r.WrongClock = wrong
	}
	return mapTimes(r, func(t time.Time) time.Time { return earlier(t, now) })
}

// mapTimes changes each time of a record from which something is waited for.
func mapTimes(r Run, to func(time.Time) time.Time) Run {
	set := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return to(t)
	}
	r.Started, r.StepStarted, r.Isolated = set(r.Started), set(r.StepStarted), set(r.Isolated)
	r.OnSeen, r.APILost, r.HealthySince = set(r.OnSeen), set(r.APILost), set(r.HealthySince)
	if !r.NotBefore.IsZero() { // it is yet to come, but no later than one interval
		pause := r.Limits.MinPowerInterval << max(0, r.Attempt-2)
		r.NotBefore = to(r.NotBefore.Add(-pause)).Add(pause)
	}
	if l := r.OffLease; l != nil && !set(l.Seen).Equal(l.Seen) {
		r.OffLease = l.seenAt(set(l.Seen))
	}
	if r.Confirmation != nil && !set(r.Confirmation.Since).Equal(r.Confirmation.Since) {
		w := *r.Confirmation // the caller's record is not ours to change
		w.Since = set(w.Since)
		r.Confirmation = &w
	}
	for i, c := range r.Contradicted {
		if at := to(c.Since); !at.Equal(c.Since) {
			r.Contradicted = slices.Clone(r.Contradicted)
			r.Contradicted[i].Since = at
		}
	}
	return r
}

// timeExpired says whether a time that is waited for has passed, by a clock that is not known to
// be wrong.
func timeExpired(s Observation, now, at time.Time) bool { return s.Clock != No && now.After(at) }
