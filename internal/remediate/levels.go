package remediate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// withoutOtherLevels is the look without what was read of another level than the run's: a proof
// is never made of two levels. // I1
func withoutOtherLevels(r Run, s Observation) Observation {
	if s.Level != r.Level {
		s.Power, s.PowerError, s.LevelRefusal, s.Identity = bmc.Reading{}, "", "", CannotTell
		s.Proof, s.OffAccepted, s.Devices, s.ProofKind = s.Proof.Reset(), false, "", ""
	}
	return s
}

// hasNextLevel says whether there is a power level above the present one.
func hasNextLevel(r Run) bool { return r.Level+1 < r.Limits.Levels }

// levelUnusable says whether asking the level again cannot help: it refuses the account, which
// more attempts would lock, or does not support what is needed.
func levelUnusable(s Observation) bool {
	return s.PowerError.RefusesAccount() || s.PowerError == bmc.KindUnsupported
}

// giveUpOnLevel ends the present level of step 1. The next level is tried; without one the run
// stops. If this level has proven the host off, another level cannot do more.
func giveUpOnLevel(r Run, s Observation, code reason.Code, note string, now time.Time) (Run, Action, time.Duration) {
	if !hasNextLevel(r) || offProven(r, s, now) {
		return stop(r, code, note, now)
	}
	return nextLevel(r, s, note, now)
}

// nextLevel goes to the next level, where everything is proven again: package run opens another
// session, and the Lease counts from that level's first Off. // I1
func nextLevel(r Run, s Observation, why string, now time.Time) (Run, Action, time.Duration) {
	note := levelName(r, s) + ": " + why + "; on to the next level"
	r.Level++
	r.OffLease = nil
	return enter(r, PowerOff, note, now)
}

// giveUpOnStart ends an attempt that could not begin at any level. An untouched first attempt is
// dropped; otherwise the run stops.
func giveUpOnStart(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	code, note := powerReason(s, reason.NotJudged), "step 1 could not begin in time: the BMC or the API did not answer"
	if offInhibited(r, s) {
		code, note = reason.OutletContradicted, miswiredNote(r, s)
	}
	switch {
	case s.PowerError != "" && hasNextLevel(r):
		return nextLevel(r, s, "no answer ("+string(s.PowerError)+")", now)
	case offInhibited(r, s) && hasNextLevel(r):
		return nextLevel(r, s, note, now)
	case r.Attempt > 1, r.Intervened:
		return stop(r, code, note, now)
	}
	return finish(r, Aborted, code, note, now)
}

// sendOff notes the level: the way back to On begins there. // I20
func sendOff(r Run, every time.Duration, now time.Time) (Run, Action, time.Duration) {
	r.OffLevel = max(r.OffLevel, r.Level) // one above may be off since before a retry
	return command(r, SendOff, every, now)
}

// levelOn says whether the present level is done on the way back to On, with a note for the
// journal. The level that switched the host off must read On. A level below it that never
// answered may have lost its power with the host, and is skipped.
func levelOn(r Run, s Observation, now time.Time) (on bool, note string) {
	switch {
	case belowOffLevel(r) && levelUnusable(s) && r.Intent.Action != SendOn && !onPending(r):
		return true, levelName(r, s) + " cannot be used (" + string(s.PowerError) + ")" + levelSkipped
	case belowOffLevel(r) && levelUnreachable(s) && !onPending(r):
		if r.Intent.Action != SendOn && now.Sub(r.StepStarted) >= min(lowerLevelWait, r.Limits.OnDeadline) {
			return true, levelName(r, s) + " has not answered since the level above it reads On" + levelSkipped
		}
		return false, ""
	case s.Power.State == bmc.On && !s.Power.Partial && !s.Power.Contradicted:
		return onWasSent(r), ""
	case s.Power.State == bmc.On && !onPending(r) && !now.Before(r.Deadline().Add(-r.Limits.OnDeadline/2)): // one outlet feeds the whole host
		return true, levelName(r, s) + " reads On only in part: " + s.Power.Raw
	}
	return false, ""
}

// levelSkipped ends the note of a level that was not read on the way back to On. A host whose own BMC was
// skipped may have stayed off although its outlets read On: only its Node shows it.
const levelSkipped = ": skipped"

// onWasSent says whether On was sent to a level above the first that was sent an Off: an
// outlet may read On and still switch off late. // I20
func onWasSent(r Run) bool { return r.Level == 0 || belowOffLevel(r) || r.Intent.Action == SendOn }

// offSettled says whether the Off of an abandoned cycle would have taken effect by now. A host
// that reads On earlier may still go off. // I20
func offSettled(r Run, s Observation, now time.Time) bool {
	return r.Abandon == "" || belowOffLevel(r) || timeExpired(s, now, r.StepStarted.Add(min(offSettle, r.Limits.OnDeadline/2)-1))
}

// belowOffLevel says whether the present level is below the one that switched the host off, so
// that the level above it reads On already.
func belowOffLevel(r Run) bool { return r.Level < r.OffLevel }

// levelUnreachable says whether the level does not answer for the target's host.
func levelUnreachable(s Observation) bool {
	return s.Power.State == bmc.Unknown && !s.Power.Unwitnessed || s.Identity == No
}

// previousLevel goes to the level below on the way back to On, with its whole time.
func previousLevel(r Run, s Observation, note string, now time.Time) (Run, Action, time.Duration) {
	level := r.Level - 1
	r, a, wait := enter(clearOnPending(r), PowerOn, cmp.Or(note, levelName(r, s)+" reads On"), now)
	r.Level = level
	return r, a, wait
}

// nextIdleLevel cycles through the levels of a Waiting or Held run whose host must be On: down from a level
// that reads On or has not answered for long, and from the lowest back to the highest.
func nextIdleLevel(r Run, s Observation, now time.Time) Run {
	since, to := now.Sub(r.StepStarted), r.Level
	waited := since >= heldLevelWait && !onPending(r)
	on := s.Power.State == bmc.On && onWasSent(r) && !s.Power.Contradicted && (!s.Power.Partial || waited)
	if on || levelUnreachable(s) && waited {
		r, to = clearOnPending(r), to-1
	}
	switch {
	case to < 0 && on:
		to = 0
	case to < 0:
		to = r.OffLevel
	}
	if to != r.Level {
		r.Level, r.StepStarted, r.Intent = to, now, Intent{}
	}
	return r
}

// needsOn says whether the level of a Waiting or Held run is to be sent On (again).
func needsOn(r Run, s Observation) bool {
	p := s.Power
	plain := p.State == bmc.On && !p.Partial && !p.Contradicted
	return p.State == bmc.Off || p.Unwitnessed || p.State == bmc.On && !(plain && onWasSent(r)) || onPending(r) && !plain
}

// levelName names the level for people, who count from 1.
func levelName(r Run, s Observation) string {
	name := fmt.Sprintf("power level %d", r.Level+1)
	if s.Devices != "" {
		name += " (" + s.Devices + ")"
	}
	return name
}

const onPendingNote = "an outlet that may feed another machine was switched off and does not read On yet"

// contradictedFor is how long outlets may read Off while a lower level reads On: some
// chassis report Off before the host is off. It is longer than two readings take.
const contradictedFor = resendPower

// Contradiction is a power level that read Off while one below it read On: it may
// feed another machine.
type Contradiction struct {
	Level int       `json:"level"`
	Since time.Time `json:"since"`
	// OnPending: it was sent an Off, and has not read On without contradiction since.
	OnPending bool `json:"owed,omitempty"`
}

// recordContradiction notes a contradiction that this look found. It stays on the record for the
// whole run: such a level is never sent an Off that could change anything. // I8, I20
func recordContradiction(r Run, s Observation, now time.Time) Run {
	if !s.Power.Contradicted || !r.Intervened {
		return r
	}
	i, ours := contradictionIndex(r), r.Level <= r.OffLevel
	switch {
	case i < 0:
		r.Contradicted = append(slices.Clone(r.Contradicted), Contradiction{Level: r.Level, Since: now, OnPending: ours})
	case ours && !r.Contradicted[i].OnPending:
		r = setOnPending(r, i, true)
	}
	return r
}

// contradictionIndex is the index of the present level among the contradicted; -1 if it is none.
func contradictionIndex(r Run) int {
	return slices.IndexFunc(r.Contradicted, func(c Contradiction) bool { return c.Level == r.Level })
}

// onPending says whether the present level must still read On, anyOnPending whether any level
// must. No run ends before, and such a level is never skipped. // I20
func onPending(r Run) bool {
	i := contradictionIndex(r)
	return i >= 0 && r.Contradicted[i].OnPending
}

func anyOnPending(r Run) bool {
	return slices.ContainsFunc(r.Contradicted, func(c Contradiction) bool { return c.OnPending })
}

func setOnPending(r Run, i int, pending bool) Run {
	r.Contradicted = slices.Clone(r.Contradicted) // the caller's record must not change
	r.Contradicted[i].OnPending = pending
	return r
}

// clearOnPending notes that the present level reads On, without contradiction.
func clearOnPending(r Run) Run {
	if i := contradictionIndex(r); i >= 0 && r.Contradicted[i].OnPending {
		return setOnPending(r, i, false)
	}
	return r
}

// levelMiswired says whether the present level has read Off for long enough while a lower
// one read On.
func levelMiswired(r Run, s Observation, now time.Time) bool {
	i := contradictionIndex(r)
	return i >= 0 && s.Power.Contradicted && now.Sub(r.Contradicted[i].Since) >= contradictedFor
}

// offInhibited says whether the present level is sent no Off, because it may feed another
// machine. Where it reads Off already without contradiction, one more Off changes nothing.
func offInhibited(r Run, s Observation) bool {
	return s.Power.Contradicted || contradictionIndex(r) >= 0 && s.Power.State != bmc.Off
}

func miswiredNote(r Run, s Observation) string {
	lower := "a lower level reads On"
	if s.Power.Contradicted {
		lower = s.Power.Raw
	}
	return levelName(r, s) + " reads Off while " + lower + ": it may feed another machine"
}

// offFailed is the reason code and sentence of a level that did not prove the host off
// in time.
func offFailed(r Run, s Observation) (code reason.Code, note string) {
	if s.Power.Contradicted || contradictionIndex(r) >= 0 {
		return reason.OutletContradicted, miswiredNote(r, s)
	}
	return powerReason(s, reason.PowerOffFailed), "the host was not proven off in time; last read: " + powerReadText(s)
}
