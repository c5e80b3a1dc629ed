package engine

import (
	"context"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/remediate"
)

// bar is why a power level is not asked for a while: it refused the account.
type bar struct {
	until   time.Time
	refusal error
}

// lookPower reads the run's power level. The session is opened when there is none
// yet; one with another level proves nothing about this one and is ended. // I1
func (w *worker) lookPower(ctx context.Context) (seen remediate.Seen) {
	if w.run.Strategy != remediate.PowerCycle {
		return seen
	}
	seen.Level = w.run.Level
	if s := w.session; s != nil && (s.level != w.run.Level || s.refusal != nil && time.Now().After(s.barred)) {
		w.dropSession(ctx) // or the credentials may have been mended meanwhile
	}
	if b := w.bars[w.run.Level]; w.session == nil && time.Now().Before(b.until) {
		seen.PowerError = bmc.KindOf(b.refusal)
		return seen
	}
	if w.session == nil {
		if err := w.open(ctx); err != nil {
			w.emit(Event{Type: EventFailed, Reason: string(hostReason(err)), Message: err.Error()})
			seen.PowerError = bmc.KindOf(err)
			return seen
		}
	}
	s, t := w.session, w.run.Target
	seen.Devices, seen.ProofKind = s.devices(), s.proofKind()
	r, err := s.read(ctx)
	seen.Power, seen.PowerError = r, bmc.KindOf(err)
	if err == nil {
		seen.Identity = answer(identify(s.host, s.level, r, w.c.claims(ctx, s.host, t, w.run.Manual != nil)))
	}
	seen.Proof, seen.OffAccepted = s.proof, s.accepted
	return seen
}

// dropSession ends the session. That a level refused the account is remembered:
// a run comes back to it on the way to On.
func (w *worker) dropSession(ctx context.Context) {
	if s := w.session; s.refusal != nil {
		w.bars[s.level] = bar{s.barred, s.refusal}
	}
	w.session.close(ctx)
	w.session = nil
}

// open finds the host again after a restart and opens its present power level.
func (w *worker) open(ctx context.Context) error {
	h, err := w.c.host(ctx, w.run.Target)
	if err != nil {
		return err
	}
	w.session, err = w.c.openLevel(h, w.run.Level, func(level int) error {
		if b := w.bars[level]; time.Now().Before(b.until) {
			return b.refusal
		}
		return nil
	})
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
