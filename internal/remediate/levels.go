package remediate

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// ofLevel is the look without what was read of another level than the run's: no
// proof is made of two. // I1
func ofLevel(r Run, s Observation) Observation {
	if s.Level != r.Level {
		s.Power, s.PowerError, s.LevelRefusal, s.Identity = bmc.Reading{}, "", "", CannotTell
		s.Proof, s.OffAccepted, s.Devices, s.ProofKind = s.Proof.Reset(), false, "", ""
	}
	return s
}

// hasNextLevel says whether there is a power level above the present one.
func hasNextLevel(r Run) bool { return r.Level+1 < r.Limits.Levels }

// levelUnusable says whether asking the level again cannot help: it refuses the account,
// which more attempts would lock, or cannot do what is needed.
func levelUnusable(s Observation) bool {
	return accountRefused(s) || s.PowerError == bmc.KindUnsupported
}

func accountRefused(s Observation) bool {
	return s.PowerError == bmc.KindAuth || s.PowerError == bmc.KindPrivilege
}

// giveUpOnLevel ends the present level of step 1: the next one is tried, and
// without one a human is needed. A level that has proven the host off did its
// part, and another cannot do more.
func giveUpOnLevel(r Run, s Observation, reason, note string, now time.Time) (Run, Action, time.Duration) {
	if !hasNextLevel(r) || offProven(r, s, now) {
		return stopAsHeld(r, reason, note, now)
	}
	return nextLevel(r, s, note, now)
}

// nextLevel goes to the next level, where everything is proven anew: the engine
// opens another session, and the Lease counts from that level's first Off. // I1
func nextLevel(r Run, s Observation, why string, now time.Time) (Run, Action, time.Duration) {
	note := levelName(r, s) + ": " + why + "; on to the next level"
	r.Level++
	r.OffLease = nil
	return enter(r, PowerOff, note, now)
}

// giveUpOnStart ends an attempt that could not begin at any level: the first is dropped;
// one with a rebooted host behind it, or an Off, waits for a human.
func giveUpOnStart(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	reason, note := powerReason(s, reasonNotJudged), "step 1 could not begin in time: the BMC or the API did not answer"
	if offInhibited(r, s) {
		reason, note = reasonOutletContradicted, miswiredNote(r, s)
	}
	switch {
	case s.PowerError != "" && hasNextLevel(r):
		return nextLevel(r, s, "no answer ("+string(s.PowerError)+")", now)
	case offInhibited(r, s) && hasNextLevel(r):
		return nextLevel(r, s, note, now)
	case r.Attempt > 1, r.Intervened:
		return stopAsHeld(r, reason, note, now)
	}
	return finish(r, Aborted, reason, note, now)
}

// sendOff notes the level first: the way back to On begins there. // I20
func sendOff(r Run, every time.Duration, now time.Time) (Run, Action, time.Duration) {
	r.OffLevel = max(r.OffLevel, r.Level) // one above may be off since before a retry
	return command(r, SendOff, every, now)
}

// startDeleteNode enters step 2, and notes what it rests on where that is not the BMC.
func startDeleteNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	r.Proof = cmp.Or(s.ProofKind, ProofBMC)
	note := ""
	if r.Level > 0 || r.Proof != ProofBMC {
		note = "proven off by " + levelName(r, s)
	}
	return enter(r, DeleteNode, note, now)
}

// levelOn says whether the present level has done its part of the way back, and
// what is to be noted about that. The level that cut the host off must read On;
// one below it that never answered may have died with its mains.
func levelOn(r Run, s Observation, now time.Time) (on bool, note string) {
	switch {
	case belowOffLevel(r) && levelUnusable(s) && r.Intent.Action != SendOn && !onPending(r):
		return true, levelName(r, s) + " cannot be used (" + string(s.PowerError) + "): passed over"
	case belowOffLevel(r) && levelUnreachable(s) && !onPending(r):
		if r.Intent.Action != SendOn && now.Sub(r.StepStarted) >= min(lowerWait, r.Limits.OnDeadline) {
			return true, levelName(r, s) + " does not answer since the one above it reads On: passed over"
		}
		return false, ""
	case s.Power.State == bmc.On && !s.Power.Partial && !s.Power.Contradicted:
		return onWasSent(r), ""
	case s.Power.State == bmc.On && !onPending(r) && !now.Before(r.Deadline().Add(-r.Limits.OnDeadline/2)): // one outlet feeds the whole host
		return true, levelName(r, s) + " reads On only in part: " + s.Power.Raw
	}
	return false, ""
}

// onWasSent says whether On was sent to a level above the first that was given an Off:
// an outlet may read On and still switch off late. // I20
func onWasSent(r Run) bool { return r.Level == 0 || belowOffLevel(r) || r.Intent.Action == SendOn }

// offSettled says whether an Off that a given-up cycle sent has been carried out by
// now if it ever will be: a host that reads On before may still go off. // I20
func offSettled(r Run, s Observation, now time.Time) bool {
	return r.Abandon == "" || belowOffLevel(r) || timeExpired(s, now, r.StepStarted.Add(min(offSettle, r.Limits.OnDeadline/2)-1))
}

// belowOffLevel says whether the present level is below the one that cut the host off,
// so that one above it reads On already.
func belowOffLevel(r Run) bool { return r.Level < r.OffLevel }

// levelUnreachable says whether the level does not answer for the target's host.
func levelUnreachable(s Observation) bool {
	return s.Power.State == bmc.Unknown && !s.Power.Unwitnessed || s.Identity == No
}

// previousLevel goes on the way back to the next level below, with its whole time.
func previousLevel(r Run, s Observation, note string, now time.Time) (Run, Action, time.Duration) {
	level := r.Level - 1
	r, a, wait := enter(clearOnPending(r), PowerOn, cmp.Or(note, levelName(r, s)+" reads On"), now)
	r.Level = level
	return r, a, wait
}

// heldLevel walks through the levels of a Held run whose host must be On: down
// from one that reads On, and on from one that does not answer, round and round.
func heldLevel(r Run, s Observation, now time.Time) Run {
	since, to := now.Sub(r.StepStarted), r.Level
	waited := since >= heldWait && !onPending(r)
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

// needsOn says whether the level of a Held run is to be told On (again).
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
