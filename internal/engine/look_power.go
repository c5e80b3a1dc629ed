package engine

import (
	"context"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
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
	if s := w.session; s != nil && (s.level != w.run.Level || s.refused && !w.barred()) {
		w.dropSession(ctx) // or the credentials may have been mended meanwhile
	}
	if w.session == nil {
		if err := w.open(ctx); err != nil {
			w.emit(event.Event{Type: event.Failed, Reason: string(hostReason(err)), Message: reason.Sentence(err)})
			seen.PowerError, seen.LevelRefusal, seen.LowerLevelOn = bmc.KindOf(err), noWay(err), w.besides(ctx)
			return seen
		}
	}
	s, t := w.session, w.run.Target
	seen.Devices, seen.ProofKind = s.devices(), s.proofKind()
	r, err := s.read(ctx)
	seen.Power, seen.PowerError, seen.LevelRefusal = r, bmc.KindOf(err), noWay(err)
	if err != nil {
		seen.LowerLevelOn = w.besides(ctx)
	} else {
		seen.Identity = answer(identify(s.host, s.level, r, w.c.claims(ctx, s.host, t, w.run.Manual != nil)))
	}
	seen.Proof, seen.OffAccepted = s.proof, s.accepted.OffAccepted()
	return seen
}

// noWay is the reason code of a level that cannot be asked for another reason than its
// BMC's; "" when it is the BMC's.
func noWay(err error) string {
	if r, ok := reason.AsRefusal(err); ok {
		return string(r.Reason)
	}
	return ""
}

// barred says whether the session's level refused the account a short while ago.
func (w *worker) barred() bool {
	return w.c.e.accounts.barLevel(w.session.host.Levels[w.session.level]) != nil
}

// dropSession ends the session.
func (w *worker) dropSession(ctx context.Context) {
	w.session.close(ctx)
	w.session = nil
}

// open finds the host again after a restart and opens its present power level.
func (w *worker) open(ctx context.Context) error {
	h, err := w.c.host(ctx, w.run.Target)
	if err != nil {
		return err
	}
	w.session, err = w.c.openLevel(h, w.run.Level)
	return err
}

// devices are those of the session's level, for notes.
func (s *session) devices() string {
	var list []string
	for _, d := range s.host.Levels[s.level].Devices {
		list = append(list, d.String())
	}
	return strings.Join(list, " + ")
}

// proofKind is what an Off read twice is worth here.
func (s *session) proofKind() remediate.ProofKind {
	if strict(s.host.Levels[s.level]) {
		return remediate.ProofBMC
	}
	return remediate.ProofDevice
}
