package bmc

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// PowerState is a power state read from a BMC. The zero value is Unknown: a
// failed read, a transitional text ("PoweringOff"), a null or an empty field.
type PowerState uint8

// The power states. There is no bool form: Unknown is never off.
const (
	Unknown PowerState = iota
	On
	Off
)

// String gives the word operators see.
func (s PowerState) String() string {
	switch s {
	case On:
		return "On"
	case Off:
		return "Off"
	}
	return "Unknown"
}

// Command is an absolute command to a BMC. There is no cycle, reset or soft form,
// so sending one twice is harmless. // I3
type Command uint8

// The two commands: Off is ForceOff (Redfish) or chassis control 0 (IPMI).
const (
	CommandOff Command = iota + 1
	CommandOn
)

// String gives the word operators see.
func (c Command) String() string {
	switch c {
	case CommandOff:
		return "off"
	case CommandOn:
		return "on"
	}
	return "no command"
}

// Reading is one answer of a BMC about its host.
type Reading struct {
	State PowerState
	// Raw is the text or byte as the BMC gave it, at most 64 bytes, for people.
	Raw string
	// At is when the reply arrived, wall clock with the monotonic part kept.
	At time.Time
	// Took is how long the device took to answer, with the set-up of a session and
	// without the wait for its turn; zero if it was not measured.
	Took time.Duration
	// Session changes when the session, or the BMC behind it, restarted. Two
	// readings with different values never support one proof.
	Session uint64
	// Identity is who answered, as far as the protocol tells.
	Identity Identity
	// Fault is a control fault or an interlock; empty means none. It voids a proof.
	Fault string
	// Parts are the readings of the devices of a level with several devices, in
	// their order. State is then Off only if each reads Off, and On if any does.
	Parts []Reading
	// Partial: some device of the level reads On and another does not.
	Partial bool
	// Contradicted: each device of the level reads Off, and a lower level reads On.
	// State is On, and the devices may be those of another machine.
	Contradicted bool
	// Unwitnessed: each device of the level reads Off, and a lower level has not
	// been read since. State is Unknown until then.
	Unwitnessed bool
}

// Receipt is the result of an accepted command. It is never a proof of a state.
type Receipt struct {
	// Already is true if the BMC refused because the host is already in that state.
	Already bool
}

// Opener returns the Power of a device. It does not connect.
type Opener func(Device) (Power, error)

// Power is one BMC. Every method returns promptly when ctx ends, limits what it
// reads, retries only inside ctx, and returns errors of type *Error. An
// implementation may be used by one goroutine at a time.
type Power interface {
	// Read reads the power state. A transitional or unintelligible answer is a
	// Reading with State Unknown and Raw set, not an error.
	Read(ctx context.Context) (Reading, error)
	// Send sends an absolute command; it is idempotent. nil means that the BMC
	// accepted the command, or reported that the host is already in that state. It
	// does not mean that the state was reached. After an error with SentMaybe the
	// command may have been carried out.
	Send(ctx context.Context, c Command) (Receipt, error)
	// Close ends the session on the BMC, even if an earlier ctx had ended. It takes
	// at most two seconds and may be called more than once.
	Close(ctx context.Context) error
}

// Over returns the error of a ctx whose time is over, also where no timer has noticed that yet: a process that was frozen may go on at any
// point, and another one may own the host by then. Whoever sends a command or a write asks right before. // I19
func Over(ctx context.Context, now time.Time) error {
	end, ends := ctx.Deadline()
	moving, moves := ctx.Value(endKey{}).(movingEnd)
	if ctx.Err() == nil && (ends && !now.Before(end) || moves && moving.over(now)) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

type endKey struct{}

// movingEnd is an end that moves while a ctx lasts. What outlives that ctx, as a witness does that began under it, has no such end.
type movingEnd struct {
	of  context.Context
	end func() time.Time
}

func (m movingEnd) over(now time.Time) bool { return m.of.Err() == nil && !now.Before(m.end()) }

// Until returns a ctx whose time is over for Over at an end that moves while what is done goes on, and at that of ctx.
func Until(ctx context.Context, end func() time.Time) context.Context {
	if outer, moves := ctx.Value(endKey{}).(movingEnd); moves && outer.of.Err() == nil {
		inner := end
		end = func() time.Time {
			at, last := inner(), outer.end()
			if at.Before(last) {
				return at
			}
			return last
		}
	}
	return context.WithValue(ctx, endKey{}, movingEnd{ctx, end})
}

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
		r.Identity != p.first.Identity,
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
	return p.first.State == Off && p.hasSecond() && now.Sub(p.last.At) <= p.MaxAge && !now.Before(p.last.At)
}

// hasSecond reports whether the newest Off counts as the second one.
func (p Proof) hasSecond() bool {
	return p.Spacing > 0 && p.last.At.Add(-p.last.Took).Sub(newest(p.first)) >= p.Spacing // one read is never a proof
}

// OffReads are the times of the reads that the proof stands on, for people: none, that of the first Off, or those of the first
// and of the newest Off once that counts as the second one.
func (p Proof) OffReads() []time.Time {
	switch {
	case p.first.State != Off:
		return nil
	case !p.hasSecond():
		return []time.Time{p.Since()}
	}
	return []time.Time{p.Since(), p.last.At}
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

// Printable returns at most limit bytes of a text from a device, without control
// characters, for people and logs.
func Printable(s string, limit int) string {
	if len(s) > 4*limit { // enough, whatever is dropped below
		s = s[:4*limit]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Scrubbed is Printable without the secrets, which a device or a program may repeat. // I25
func Scrubbed(s string, limit int, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "[redacted]")
		}
	}
	return Printable(s, limit)
}

// SafeText is an error text that may be shown. It does not unwrap to the error that it is from, which may
// hold a secret. // I25
type SafeText string

func (s SafeText) Error() string { return string(s) }
