package power

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// ReadTiming bounds what is asked of a BMC.
type ReadTiming struct {
	ReadTimeout    time.Duration
	OffReadSpacing time.Duration
}

// Times of programs and libraries of others, which start, log in and wait by themselves.
const (
	AgentReadTimeout = 20 * time.Second
	AgentSendTimeout = 40 * time.Second
)

// Times that are not configurable.
const (
	SendTimeout  = 10 * time.Second // one command to a BMC's own protocol
	CloseTimeout = 2 * time.Second  // ending a session, and the wait for it
	AccountPause = 5 * time.Minute  // after a BMC refused the account
	ProofMaxAge  = 5 * time.Second  // age of the newest reading of a proof // I1
)

// Timing is what one operation at a device may take, where a native driver has read
// for a reading. All that ask a device wait equally long: who waits less would call
// one dead that a fence can rely on.
func Timing(d bmc.Device, read time.Duration) bmc.Timing {
	if d.IsNative() {
		return bmc.Timing{ReadTimeout: read, SendTimeout: SendTimeout}
	}
	return bmc.Timing{ReadTimeout: max(read, AgentReadTimeout), SendTimeout: AgentSendTimeout}
}

// Session is one run's (or probe's) use of one BMC: what was read, what that
// proves, and whether an Off was accepted. It lives in memory only, so a
// restart proves again. One goroutine uses it at a time. // I1
type Session struct {
	Host     bmc.Host
	Level    int // index into Host.Levels
	conn     bmc.Power
	readTime time.Duration
	SendTime time.Duration  // bounds one command
	Proof    bmc.Proof      // what the readings so far prove, of this session alone // I1
	Accepted bmc.Acceptance // of an Off, as long as nothing since speaks against it
	// AccountRefused: the level has refused the account in this session.
	AccountRefused bool
}

// Open opens a power level of a host.
func Open(open bmc.Opener, h bmc.Host, level int, t ReadTiming) (*Session, error) {
	p, err := OpenLevel(open, h, level)
	if err != nil {
		return nil, err
	}
	return newSession(h, level, p, t), nil
}

// KeepsSessions reports whether a session with a level, or with one below it, which is its witness,
// keeps sessions on devices.
func KeepsSessions(h bmc.Host, level int) bool {
	return slices.ContainsFunc(h.Levels[:min(level+1, len(h.Levels))], func(l bmc.Level) bool {
		return slices.ContainsFunc(l.Devices, func(d bmc.Device) bool { return d.Driver.Descriptor().KeepsSession })
	})
}

// OpenAndRead opens a power level and reads it. The session is the caller's when there is
// no error.
func OpenAndRead(ctx context.Context, open bmc.Opener, h bmc.Host, level int, t ReadTiming) (bmc.Reading, *Session, error) {
	s, err := Open(open, h, level, t)
	if err != nil {
		return bmc.Reading{}, nil, err
	}
	r, err := s.Read(ctx)
	if err != nil {
		s.Close(ctx)
		return bmc.Reading{}, nil, err
	}
	return r, s, nil
}

// OnAmong asks each device of a power level alone, all at the same time, and names one that reads On; "" if none does. One that refuses
// its account, or cannot be opened, makes the level unreadable, and says nothing about the others. // I26
func OnAmong(ctx context.Context, open bmc.Opener, h bmc.Host, level int, t ReadTiming) string {
	devices := h.Levels[level].Devices
	on := make([]string, len(devices))
	var reads sync.WaitGroup
	for i, d := range devices {
		reads.Go(func() {
			alone := bmc.Host{Name: h.Name, Levels: []bmc.Level{{Devices: []bmc.Device{d}}}}
			r, s, err := OpenAndRead(ctx, toRead(open), alone, 0, t)
			if err != nil {
				return
			}
			defer s.Close(ctx)
			if r.State == bmc.On {
				on[i] = d.String()
			}
		})
	}
	reads.Wait()
	return cmp.Or(on...)
}

func newSession(h bmc.Host, level int, p bmc.Power, t ReadTiming) *Session {
	s := &Session{Host: h, Level: level, conn: p, Proof: bmc.Proof{Spacing: t.OffReadSpacing, MaxAge: ProofMaxAge}}
	for _, d := range h.Levels[level].Devices { // they are asked at once
		own := Timing(d, t.ReadTimeout)
		s.readTime, s.SendTime = max(s.readTime, own.ReadTimeout), max(s.SendTime, own.SendTimeout)
	}
	return s
}

// Read asks for the power state. A failed read is an Unknown reading, which
// voids the proof like any other that is not Off.
func (s *Session) Read(ctx context.Context) (bmc.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, s.readTime)
	defer cancel()
	r, err := s.conn.Read(ctx)
	if err != nil {
		r = bmc.Reading{At: time.Now()}
		s.AccountRefused = s.AccountRefused || bmc.KindOf(err).RefusesAccount()
	} else {
		s.Accepted = s.Accepted.AddReading(r)
	}
	s.Proof = s.Proof.Add(r)
	return r, err
}

// Send gives a command. Readings from before it prove nothing about it.
func (s *Session) Send(ctx context.Context, c bmc.Command) error {
	ctx, cancel := context.WithTimeout(ctx, s.SendTime)
	defer cancel()
	_, err := s.conn.Send(ctx, c)
	s.Proof = s.Proof.Reset()
	s.Accepted = s.Accepted.AddCommand(c, err)
	if err != nil {
		s.AccountRefused = s.AccountRefused || bmc.KindOf(err).RefusesAccount() // the next look shows it
	}
	return err
}

// Close ends the session.
func (s *Session) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
	defer cancel()
	_ = s.conn.Close(ctx) // a session left behind is the BMC's to time out
}

// LowerLevelOn names what has read On since a time and is in no Reading: a witness of a level below, or a device beside
// one that refused the account; "" if nothing has.
func (s *Session) LowerLevelOn(since time.Time) string {
	if level, ok := s.conn.(interface{ LowerLevelOn(since time.Time) string }); ok {
		return level.LowerLevelOn(since)
	}
	return ""
}

// MissingWitnesses is how many devices of lower levels could not be opened with the session, and are no witnesses in it.
func (s *Session) MissingWitnesses() int {
	if level, ok := s.conn.(interface{ MissingWitnesses() int }); ok {
		return level.MissingWitnesses()
	}
	return 0
}

// RefusedWitness reports whether a device of a lower level has refused its account in the session, and is asked no more in it.
func (s *Session) RefusedWitness() bool {
	level, ok := s.conn.(interface{ RefusedWitness() bool })
	return ok && level.RefusedWitness()
}

// LevelText names the devices of a power level, for people.
func LevelText(h bmc.Host, level int) string {
	var list []string
	for _, d := range h.Levels[level].Devices {
		list = append(list, d.String())
	}
	return strings.Join(list, " + ")
}

// IsStrict reports whether every device of a level refuses forged answers and tells
// whose it is.
func IsStrict(l bmc.Level) bool {
	return !slices.ContainsFunc(l.Devices, func(d bmc.Device) bool { return d.Assurance() != bmc.AssuranceStrict })
}
