package bmc

import "time"

// Proof collects readings until they prove that a host is off. The zero value,
// with Spacing set, is an empty proof. It is a plain value, is never persisted,
// and reads no clock: a restart proves again. // I1
type Proof struct {
	// Spacing is the least time between the two Off reads (I1: 3 s).
	Spacing time.Duration
	// MaxAge is how old the newest Off read may be when it is used (I1: 5 s).
	MaxAge time.Duration

	first, last Reading
}

// Add takes one more reading and returns the grown proof. Anything that is not
// a plain Off from the same identified session empties it: On, Unknown, a
// fault, another session (the BMC restarted or reconnected), another identity.
func (p Proof) Add(r Reading) Proof {
	switch {
	case r.State != Off || r.Fault != "":
		return p.Reset()
	case p.first.State != Off,
		r.Session != p.first.Session,
		!r.Identity.Equal(p.first.Identity),
		r.At.Before(p.last.At): // a clock that ran backwards proves nothing
		p.first, p.last = r, r
	default:
		p.last = r
	}
	return p
}

// Reset returns the proof without its readings.
func (p Proof) Reset() Proof {
	return Proof{Spacing: p.Spacing, MaxAge: p.MaxAge}
}

// Proven says whether, at now, the readings prove the host off: two Off at
// least Spacing apart with nothing else between, the newest at most MaxAge old.
// What a slow BMC answers may be as old as the question, so the second is counted
// from that. Of a level, all this holds for each device.
func (p Proof) Proven(now time.Time) bool {
	return p.first.State == Off && p.Spacing > 0 && // one read is never a proof
		p.last.At.Add(-p.last.Took).Sub(newest(p.first)) >= p.Spacing &&
		now.Sub(p.last.At) <= p.MaxAge && !now.Before(p.last.At)
}

// Until is when the newest read is too old; zero without one.
func (p Proof) Until() time.Time {
	if p.first.State != Off {
		return time.Time{}
	}
	return p.last.At.Add(p.MaxAge)
}

// Since is the time of the first Off read of this proof; zero without one.
func (p Proof) Since() time.Time { return newest(p.first) }

// NextRead is when the next reading is useful: now while nothing was read, at
// the end of the spacing after a first Off.
func (p Proof) NextRead(now time.Time) time.Time {
	if p.first.State != Off {
		return now
	}
	return newest(p.first).Add(p.Spacing)
}

// newest is when the last device of a level answered. A reading's own time is that
// of the first, so between two readings each device has the spacing to itself.
func newest(r Reading) time.Time {
	at := r.At
	for _, part := range r.Parts {
		if part.At.After(at) {
			at = part.At
		}
	}
	return at
}

// Acceptance is whether a device took an Off, and is still the one that took it. The
// zero value is no. Like a Proof it is a plain value and is never persisted. // I1
type Acceptance struct {
	heard, off bool
	session    uint64 // of the last answer
}

// AddReading takes in an answered reading. A new session ends the acceptance: a BMC that
// restarted may have forgotten the command before it was carried out, and say Off of a
// host that it has not looked at yet.
func (a Acceptance) AddReading(r Reading) Acceptance {
	if !a.heard || r.Session != a.session {
		return Acceptance{heard: true, session: r.Session}
	}
	return a
}

// AddCommand notes a command and what came of it. Before the first reading nobody knows in
// which session it was accepted, so that an Off does not count.
func (a Acceptance) AddCommand(c Command, err error) Acceptance {
	a.off = a.heard && c == CommandOff && err == nil
	return a
}

// OffAccepted says whether an Off counts as accepted.
func (a Acceptance) OffAccepted() bool { return a.off }
