package bmc

import "time"

// Proof collects readings until they prove that a host is off. The zero value
// with Spacing and MaxAge set is an empty proof. It is a plain value and reads no
// clock. It is never persisted: after a restart the host is proven off again. // I1
type Proof struct {
	// Spacing is the minimum time between the two Off reads (I1: 3 s).
	Spacing time.Duration
	// MaxAge is the maximum age of the newest Off read when the proof is used
	// (I1: 5 s).
	MaxAge time.Duration

	first, last Reading
}

// Add adds a reading and returns the new proof. Any reading other than a plain
// Off from the same session and identity empties the proof: On, Unknown, a fault,
// another session (the BMC restarted or reconnected), another identity.
func (p Proof) Add(r Reading) Proof {
	switch {
	case r.State != Off || r.Fault != "":
		return p.Reset()
	case p.first.State != Off,
		r.Session != p.first.Session,
		!r.Identity.Equal(p.first.Identity),
		r.At.Before(p.last.At): // the clock was set back
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

// Proven reports whether, at now, the readings prove the host off: two Off at
// least Spacing apart with nothing else between them, the newest at most MaxAge
// old. The answer of a slow BMC may describe the time of the request, so the
// second reading counts from its request. For a level, this must hold for each
// device.
func (p Proof) Proven(now time.Time) bool {
	return p.first.State == Off && p.Spacing > 0 && // one read is never a proof
		p.last.At.Add(-p.last.Took).Sub(newest(p.first)) >= p.Spacing &&
		now.Sub(p.last.At) <= p.MaxAge && !now.Before(p.last.At)
}

// Until is when the newest read becomes too old; zero without one.
func (p Proof) Until() time.Time {
	if p.first.State != Off {
		return time.Time{}
	}
	return p.last.At.Add(p.MaxAge)
}

// Since is the time of the first Off read of this proof; zero without one.
func (p Proof) Since() time.Time { return newest(p.first) }

// NextRead is when the next reading is useful: now before the first Off, else at
// the end of the spacing.
func (p Proof) NextRead(now time.Time) time.Time {
	if p.first.State != Off {
		return now
	}
	return newest(p.first).Add(p.Spacing)
}

// newest is when the last device of a level answered. A reading's own time is
// that of the first device, so each device has the full spacing between two
// readings.
func newest(r Reading) time.Time {
	at := r.At
	for _, part := range r.Parts {
		if part.At.After(at) {
			at = part.At
		}
	}
	return at
}

// Acceptance records whether a device accepted an Off, and has not restarted
// since. The zero value means no. Like a Proof it is a plain value and is never
// persisted. // I1
type Acceptance struct {
	read, off bool
	session   uint64 // of the last reading
}

// AddReading adds a successful reading. A new session ends the acceptance: a BMC
// that restarted may have lost the command before it was carried out, and may
// report Off for a host that it has not checked yet.
func (a Acceptance) AddReading(r Reading) Acceptance {
	if !a.read || r.Session != a.session {
		return Acceptance{read: true, session: r.Session}
	}
	return a
}

// AddCommand adds a command and its result. Before the first reading the session
// is not known, so an accepted Off does not count.
func (a Acceptance) AddCommand(c Command, err error) Acceptance {
	a.off = a.read && c == CommandOff && err == nil
	return a
}

// OffAccepted reports whether an accepted Off still counts.
func (a Acceptance) OffAccepted() bool { return a.off }
