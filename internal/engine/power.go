package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// PowerTiming bounds what is asked of a BMC.
type PowerTiming struct {
	ReadTimeout    time.Duration
	OffReadSpacing time.Duration
}

// Programs and libraries of others start, log in and wait by themselves.
const (
	AgentReadTimeout = 20 * time.Second
	AgentSendTimeout = 40 * time.Second
)

const (
	SendTimeout  = 10 * time.Second // one command
	closeTimeout = 2 * time.Second  // ending a session
	accountPause = 5 * time.Minute  // after a BMC refused the account
	proofMaxAge  = 5 * time.Second  // I1
)

// Timing is what one operation at a device may take, where a strict one has read
// for a reading. All that ask a device wait equally long: who waits less would call
// one dead that a fence can rely on.
func Timing(d bmc.Device, read time.Duration) bmc.Timing {
	if d.Assurance() == bmc.AssuranceStrict {
		return bmc.Timing{ReadTimeout: read, SendTimeout: SendTimeout}
	}
	return bmc.Timing{ReadTimeout: max(read, AgentReadTimeout), SendTimeout: AgentSendTimeout}
}

// session is one run's (or probe's) use of one BMC: what was read, what that
// proves, and whether an Off was accepted. It lives in memory only, so a
// restart proves again. One goroutine uses it at a time. // I1
type session struct {
	host     bmc.Host
	level    int
	power    bmc.Power
	readTime time.Duration
	sendTime time.Duration
	proof    bmc.Proof
	accepted bmc.Acceptance
	refused  bool // the account, once
}

func newSession(h bmc.Host, level int, p bmc.Power, t PowerTiming) *session {
	s := &session{host: h, level: level, power: p, proof: bmc.Proof{Spacing: t.OffReadSpacing, MaxAge: proofMaxAge}}
	for _, d := range h.Levels[level].Devices { // they are asked at once
		own := Timing(d, t.ReadTimeout)
		s.readTime, s.sendTime = max(s.readTime, own.ReadTimeout), max(s.sendTime, own.SendTimeout)
	}
	return s
}

// read asks for the power state. A failed read is an Unknown reading, which
// voids the proof like any other that is not Off.
func (s *session) read(ctx context.Context) (bmc.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, s.readTime)
	defer cancel()
	r, err := s.power.Read(ctx)
	if err != nil {
		r = bmc.Reading{At: time.Now()}
	} else {
		s.accepted = s.accepted.AddReading(r)
	}
	s.proof = s.proof.Add(r)
	s.refused = s.refused || bmc.KindOf(err).RefusesAccount()
	return r, err
}

// send gives a command. Readings from before it prove nothing about it.
func (s *session) send(ctx context.Context, c bmc.Command) error {
	ctx, cancel := context.WithTimeout(ctx, s.sendTime)
	defer cancel()
	_, err := s.power.Send(ctx, c)
	s.proof = s.proof.Reset()
	s.accepted = s.accepted.AddCommand(c, err)
	s.refused = s.refused || bmc.KindOf(err).RefusesAccount() // the next look shows it
	return err
}

func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = s.power.Close(ctx) // a session left behind is the BMC's to time out
}
