package run

import (
	"context"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// lookPower reads the run's power level. The session is opened when there is none
// yet; one with another level proves nothing about this one and is ended. // I1
func (w *worker) lookPower(ctx context.Context) (seen remediate.Observation) {
	if w.run.Strategy != remediate.PowerCycle {
		return seen
	}
	seen.Level = w.run.Level
	if !w.run.HasConfirmation() {
		w.against = ""
	}
	if s := w.session; s != nil && (s.Level != w.run.Level || s.AccountRefused() && !w.barred()) {
		w.dropSession(ctx) // or the credentials may have been mended meanwhile
	}
	if w.session == nil {
		if err := w.open(ctx); err != nil {
			w.emit(event.Event{Type: event.Failed, Reason: hosts.ReasonOf(err), Message: reason.Sentence(err)})
			seen.PowerError, seen.LevelRefusal, seen.LowerLevelOn = bmc.KindOf(err), levelRefusal(err), w.besides(ctx)
			return seen
		}
	}
	s, t := w.session, w.run.Target
	seen.Devices, seen.ProofKind = s.Devices(), proofKind(s)
	r, err := s.Read(ctx)
	seen.Power, seen.PowerError, seen.LevelRefusal = r, bmc.KindOf(err), levelRefusal(err)
	if err != nil {
		seen.LowerLevelOn = w.besides(ctx)
	} else {
		seen.Identity = answer(w.r.opt.Hosts.Identify(ctx, s.Host, s.Level, r, t, w.run.Manual != nil))
	}
	seen.Proof, seen.OffAccepted = s.Proof(), s.OffAccepted()
	return seen
}

// levelRefusal is the reason code of a level that cannot be asked for another reason than its
// BMC's; "" when it is the BMC's.
func levelRefusal(err error) reason.Code {
	if r, ok := reason.AsRefusal(err); ok {
		return r.Reason
	}
	return ""
}

// barred says whether the session's level refused the account a short while ago.
func (w *worker) barred() bool {
	return w.r.opt.LockOut.Refuses(w.session.Host.Levels[w.session.Level]) != nil
}

// dropSession ends the session.
func (w *worker) dropSession(ctx context.Context) {
	w.session.Close(ctx)
	w.session = nil
}

// open finds the host again after a restart and opens its present power level.
func (w *worker) open(ctx context.Context) error {
	h, err := w.r.opt.Hosts.Find(ctx, w.run.Target)
	if err != nil {
		return err
	}
	w.session, err = power.Open(w.r.opt.Open, h, w.run.Level, w.r.opt.Timing)
	return err
}

// proofKind is what an Off that is read twice is worth in a session.
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
