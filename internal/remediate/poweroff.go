package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// 1 PowerOff. Goal: Off, proven by two spaced reads of the identified BMC, and no renewal of the
// Lease since. Nothing is touched until fresh reads justify it.
func powerOff(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	switch why := confirmationContradicted(r, s); {
	case falseOffReason(r, s) != "" && r.Intervened: // also beside a manual confirmation // I5
		return stop(r, reason.FalseOff, falseOffReason(r, s), now)
	case why != "":
		return holdContradicted(r, why, now)
	case confirmationActive(r) && levelUnreadable(r, s, now):
		return powerOffConfirmed(r, s, now)
	case !r.Intervened, r.Revalidate:
		return preflight(r, s, now)
	case hostCameUp(r, s):
		return cancelOff(r, s, now)
	}
	return switchOff(r, s, now)
}

// switchOff is step 1 after its first command: Off until that is proven.
func switchOff(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	if r = recordOffLease(r, s, now); s.Power.State == bmc.On {
		r = retargetNode(r, s)
	}
	found, noEffect := interlockAt(stageSwitchingOff, r, s), binding{}
	if firstAttemptWithoutEffect(r, s) { // the lock or Off failed, and what justified the run may be gone // I4
		noEffect = interlockAt(stageNoEffect, r, s)
	}
	switch {
	case offProven(r, s, now) && leaseQuiet(r, s, now) && powerLockHeld(r, s):
		return startDeleteNode(r, s, now)
	case found.ends():
		return found.apply(r, s, now)
	case levelMiswired(r, s, now):
		return giveUpOnLevel(r, s, reason.OutletContradicted, miswiredNote(r, s), now)
	case s.PowerError.RefusesAccount():
		return giveUpOnLevel(r, s, powerReason(s, ""), "the BMC refuses the account", now) // retrying locks it
	case levelUnusable(s) && hasNextLevel(r):
		return nextLevel(r, s, "it does not support what is needed", now)
	case timeExpired(s, now, r.Deadline()) && s.API != APIReachable && offProven(r, s, now):
		return giveUpIsolation(r, s, now) // only the Lease is not known to stand still
	case timeExpired(s, now, r.Deadline()):
		code, note := offFailed(r, s)
		return giveUpOnLevel(r, s, code, note, now)
	case noEffect.ends():
		return noEffect.apply(r, s, now)
	case noEffectYet(r, s) && preconditionsUnknown(r, s, now), s.Identity != Yes: // the power lock, too, is a power command // I8
		return r, Nothing, poll
	case s.Contested != No && s.Power.State != bmc.Off: // not even a repeated command; an Off to what reads Off changes nothing // I22
		return r, Nothing, poll
	case r.Target.BareMetalHost != "" && s.PowerLock == No:
		return command(r, SetPowerLock, resendWrite, now)
	case r.Target.BareMetalHost != "" && s.PowerLock != Yes, offInhibited(r, s), nodeRecovered(r, s):
		return r, Nothing, poll
	case !s.OffAccepted:
		return sendOff(r, poll, now)
	case s.Power.State != bmc.Off:
		return sendOff(r, resendPower, now)
	}
	return r, Nothing, untilRead(s, now)
}

// preflight is step 1 before its first command, or its first one since a person had it begin
// again: any doubt drops the run. // I4, I8, I22
func preflight(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	at, again := stageUntouched, r.Attempt > 1 // a later attempt is justified by the missed deadline of the one before, while it is asked for
	if again {
		at = stageLaterAttempt
	}
	found := interlockAt(at, r, s)
	switch {
	case again && s.Node.Ready == Yes && targetReplaced(r, s) == "":
		return acceptReadyNode(r, s, now)
	case again && s.RenamedTo != "":
		return holdRenamed(r, s, now)
	case found.ends():
		return found.apply(r, s, now)
	case now.Before(r.NotBefore):
		return r, Nothing, min(idlePoll, r.NotBefore.Sub(now))
	case levelUnusable(s) && hasNextLevel(r):
		return nextLevel(r, s, "not usable ("+string(s.PowerError)+")", now)
	case timeExpired(s, now, times.Later(r.Deadline(), r.NotBefore.Add(r.Limits.OffDeadline))):
		return giveUpOnStart(r, s, now)
	case found.effect != proceed, s.API != APIReachable, s.Contested != No, s.Identity != Yes,
		s.Node.Exists == CannotTell, s.Justified != Yes && !again && !confirmationActive(r), s.Withdrawn != No && !confirmationActive(r),
		noQuorum(r, s), now.Sub(s.At) > freshFor, offInhibited(r, s), again && s.NodesUnseen,
		s.Power.Unwitnessed: // perhaps it is off already
		return r, Nothing, poll
	}
	r = retargetNode(r, s) // not earlier: step 4 compares a Node that is Ready after all with the old one
	r.FoundOff = r.FoundOff || !r.Intervened && s.Power.State == bmc.Off
	r.Intervened, r.Revalidate, r.StepStarted = true, false, now
	if r.Target.BareMetalHost != "" && s.PowerLock != Yes {
		return command(r, SetPowerLock, 0, now)
	}
	return sendOff(r, 0, now)
}
