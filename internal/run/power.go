package run

import (
	"context"
	"errors"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

var errNoSession = errors.New("no session with the BMC")

// powerAccess is one run's access to the power of its host: the session with the present power
// level, which holds the proof of off, and what contradicts a confirmation. Each call gets the
// record of that run as it is now.
type powerAccess struct {
	opt     *Options
	session *power.Session // nil if there is none
	// readError is why the last read failed; nil if it did not.
	readError error
	// contradiction names a power level that read On while a person confirms that the host is
	// off. It is "" if none did. // I26
	contradiction string
}

// look reads the run's power level. It opens a session if there is none, and ends one with
// another level, which proves nothing about this level. openError is why no session could be
// opened. // I1
func (p *powerAccess) look(ctx context.Context, run remediate.Run) (seen remediate.Observation, openError error) {
	if run.Strategy != remediate.PowerCycle {
		return seen, nil
	}
	seen.Level, p.readError = run.Level, nil
	if !run.HasConfirmation() {
		p.contradiction = ""
	}
	if s := p.session; s != nil && (s.Level != run.Level || s.AccountRefused() && !p.lockedOut()) {
		p.drop(ctx) // the account may be accepted by now
	}
	if p.session == nil {
		if err := p.open(ctx, run); err != nil {
			seen.PowerError, seen.LevelRefusal, seen.LowerLevelOn = bmc.KindOf(err), levelRefusal(err), p.contradicts(ctx, run)
			return seen, err
		}
	}
	s := p.session
	seen.Devices, seen.ProofKind = s.Devices(), proofKind(s)
	r, err := s.Read(ctx)
	p.readError = err
	seen.Power, seen.PowerError, seen.LevelRefusal = r, bmc.KindOf(err), levelRefusal(err)
	if err != nil {
		seen.LowerLevelOn = p.contradicts(ctx, run)
	} else {
		seen.Identity = answer(p.opt.Hosts.Identify(ctx, s.Host, s.Level, r, run.Target, run.Manual != nil))
	}
	seen.Proof, seen.OffAccepted = s.Proof(), s.OffAccepted()
	return seen, nil
}

// open finds the host and opens the run's power level.
func (p *powerAccess) open(ctx context.Context, run remediate.Run) error {
	h, err := p.opt.Hosts.Find(ctx, run.Target)
	if err != nil {
		return err
	}
	p.session, err = power.Open(p.opt.Open, h, run.Level, p.opt.Timing)
	return err
}

// drop ends the session, if there is one.
func (p *powerAccess) drop(ctx context.Context) {
	if p.session != nil {
		p.session.Close(ctx)
		p.session = nil
	}
}

// lockedOut reports whether the session's level refused the account a short while ago.
func (p *powerAccess) lockedOut() bool {
	return p.opt.LockOut.Refuses(p.session.Host.Levels[p.session.Level]) != nil
}

// retryAccount tries the credentials again even if they were refused: a person who gives an
// order may have corrected them.
func (p *powerAccess) retryAccount(ctx context.Context, run remediate.Run) {
	if h, err := p.opt.Hosts.Entry(ctx, run.Target); err == nil {
		p.opt.LockOut.ForgetAccounts(h)
	}
	if p.session != nil && p.session.AccountRefused() {
		p.drop(ctx)
	}
}

func (p *powerAccess) send(ctx context.Context, run remediate.Run, c bmc.Command) error {
	if p.session == nil {
		return &bmc.Error{Kind: bmc.KindUnreachable, Op: "send " + c.String(), Addr: run.Target.Address, Err: errNoSession}
	}
	return p.session.Send(ctx, c)
}

// sendTimeout bounds one command, and the end of its session.
func (p *powerAccess) sendTimeout() time.Duration {
	if p.session == nil {
		return actTimeout
	}
	return max(actTimeout, p.session.SendTime+power.CloseTimeout)
}

// proven reports whether the proof of off holds now: saving may have taken time. On a
// confirmation, it reports whether the look that found no contradiction is as fresh as a proof
// must be. // I1, I26
func (p *powerAccess) proven(run remediate.Run, seen remediate.Observation) bool {
	if run.IsolatesOnConfirmation() {
		return time.Since(seen.At) <= power.ProofMaxAge
	}
	return p.session != nil && p.session.Proof().Proven(time.Now())
}

// proofLost reads once more, and returns why the host is no longer proven off. It is "" if the
// host still is. // I1
func (p *powerAccess) proofLost(ctx context.Context) string {
	ctx, cancel := context.WithDeadline(ctx, p.session.Proof().Until()) // a longer read would let the write go on with an old proof
	defer cancel()
	if _, err := p.session.Read(ctx); err != nil {
		return "the power state cannot be read any more: " + err.Error()
	}
	if !p.session.OffAccepted() || !p.session.Proof().Proven(time.Now()) {
		return "the host is no longer proven off"
	}
	return ""
}

// levelRefusal is the reason code if fenced itself refuses a power level. It is "" if the error
// is that of the BMC.
func levelRefusal(err error) reason.Code {
	if r, ok := reason.AsRefusal(err); ok {
		return r.Reason
	}
	return ""
}

// proofKind is how much two Off readings of a session prove.
func proofKind(s *power.Session) remediate.ProofKind {
	if s.Strict() {
		return remediate.ProofBMC
	}
	return remediate.ProofDevice
}

func answer(v guard.IdentityVerdict) remediate.Answer {
	switch v {
	case guard.IdentityMatches:
		return remediate.Yes
	case guard.IdentityDiffers:
		return remediate.No
	}
	return remediate.CannotTell
}
