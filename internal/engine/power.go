package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/remediate"
)

// PowerTiming bounds what is asked of a BMC.
type PowerTiming struct {
	ReadTimeout    time.Duration
	OffReadSpacing time.Duration
}

const (
	SendTimeout  = 10 * time.Second // one command
	closeTimeout = 2 * time.Second  // ending a session
	accountPause = 5 * time.Minute  // after a BMC refused the account
	proofMaxAge  = 5 * time.Second  // I1
)

// session is one run's (or probe's) use of one BMC: what was read, what that
// proves, and whether an Off was accepted. It lives in memory only, so a
// restart proves again. One goroutine uses it at a time. // I1
type session struct {
	host     bmc.Host
	power    bmc.Power
	timing   PowerTiming
	proof    bmc.Proof
	accepted bool
	// barred is until when the BMC is not asked, because it refused the account
	// with refusal: asking again would lock it.
	barred  time.Time
	refusal error
}

func newSession(h bmc.Host, p bmc.Power, t PowerTiming) *session {
	return &session{host: h, power: p, timing: t, proof: bmc.Proof{Spacing: t.OffReadSpacing, MaxAge: proofMaxAge}}
}

// read asks for the power state. A failed read is an Unknown reading, which
// voids the proof like any other that is not Off.
func (s *session) read(ctx context.Context) (bmc.Reading, error) {
	if time.Now().Before(s.barred) {
		return bmc.Reading{At: time.Now()}, s.refusal // the proof was voided when it was refused
	}
	ctx, cancel := context.WithTimeout(ctx, s.timing.ReadTimeout)
	defer cancel()
	r, err := s.power.Read(ctx)
	if err != nil {
		r = bmc.Reading{At: time.Now()}
	}
	s.proof = s.proof.Add(r)
	if accountRefused(err) {
		s.barred, s.refusal = time.Now().Add(accountPause), err
	}
	return r, err
}

func accountRefused(err error) bool {
	k := bmc.KindOf(err)
	return k == bmc.KindAuth || k == bmc.KindPrivilege
}

// send gives a command. Readings from before it prove nothing about it.
func (s *session) send(ctx context.Context, c bmc.Command) error {
	if time.Now().Before(s.barred) {
		return s.refusal
	}
	ctx, cancel := context.WithTimeout(ctx, SendTimeout)
	defer cancel()
	_, err := s.power.Send(ctx, c)
	s.proof = s.proof.Reset()
	s.accepted = c == bmc.CommandOff && err == nil
	if accountRefused(err) { // the next look shows it
		s.barred, s.refusal = time.Now().Add(accountPause), err
	}
	return err
}

func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = s.power.Close(ctx) // a session left behind is the BMC's to time out
}

// identify compares who answered with whom the Node says it runs on. // I8
//
// required: the Node's system UUID decides; only without one does a pin.
// pinned: only a pin does. off: nothing is compared, for manual fences alone.
func identify(h bmc.Host, got bmc.Identity, nodeUUID, pin string, manual bool) remediate.Answer {
	if h.PinnedUUID != "" {
		pin = h.PinnedUUID
	}
	switch h.IdentityMode {
	case identityOff:
		if manual { // a person answers for it
			return remediate.Yes
		}
		return remediate.CannotTell
	case identityPinned:
		nodeUUID = ""
		pin = h.PinnedUUID
	}
	if h.PinnedUUID != "" && bmc.UsableUUID(got.UUID) && !bmc.UUIDsMatch(got.UUID, h.PinnedUUID) {
		return remediate.No
	}
	want := nodeUUID
	if !bmc.UsableUUID(want) {
		want = pin
	}
	if !bmc.UsableUUID(got.UUID) || !bmc.UsableUUID(want) {
		return remediate.CannotTell
	}
	return remediate.Ask(bmc.UUIDsMatch(got.UUID, want))
}

// The identity modes of guards.identity.
const (
	identityPinned = "pinned"
	identityOff    = "off"
)
