package remediate

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/times"
)

// The times of a record come from the clock of the host that wrote it. The next reader may be
// another host, or the same one after its clock was set. This file bounds what a wrong clock can
// do: no deadline expires because of it, and no wait goes on for ever. // I16, I20

// alignClock makes the times of a record comparable with now. A time in the future was written
// by a clock that was ahead, and becomes now. While this host's clock does not agree with the API
// server's, or was not compared with it, all waits start again, with each such clock, and once
// more when a clock agrees again.
func alignClock(r Run, s Observation, now time.Time) Run {
	if wrong := s.Clock != Yes; wrong != r.WrongClock || wrong && s.ClockSet {
		r = mapTimes(r, func(time.Time) time.Time { return now })
		r.WrongClock = wrong
	}
	return mapTimes(r, func(t time.Time) time.Time { return times.Earlier(t, now) })
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
	r.BusySince = set(r.BusySince)
	if !r.NotBefore.IsZero() { // it is in the future, by one interval at most
		pause := pauseBefore(r)
		r.NotBefore = to(r.NotBefore.Add(-pause)).Add(pause)
	}
	if l := r.OffLease; l != nil && !set(l.Seen).Equal(l.Seen) {
		r.OffLease = l.seenAt(set(l.Seen))
	}
	if r.Wait != nil && !to(r.Wait.Since).Equal(r.Wait.Since) {
		w := *r.Wait
		w.Since = to(w.Since)
		r.Wait = &w
	}
	if r.Confirmation != nil && !set(r.Confirmation.Since).Equal(r.Confirmation.Since) {
		w := *r.Confirmation // the caller's record must not change
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

// timeExpired says whether a time has passed, by a clock that is not known to be wrong.
func timeExpired(s Observation, now, at time.Time) bool { return s.Clock != No && now.After(at) }
