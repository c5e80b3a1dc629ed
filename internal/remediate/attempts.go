package remediate

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// nextAttempt starts another power cycle, or step 6 when the attempts are used up.
// If nobody asks for it any more, the run rests instead: a Node that registers late is still taken
// back and restored.
func nextAttempt(r Run, s Observation, why string, now time.Time) (Run, Action, time.Duration) {
	if s.Withdrawn == Yes && !confirmationActive(r) {
		return rest(r, reason.Withdrawn, why+"; no other power cycle: "+s.WithdrawnWhy, now)
	}
	if r.Attempt >= r.Limits.MaxAttempts {
		r.Reason, r.Note = reason.AttemptsExhausted, why
		return enter(r, Reprovision, why, now)
	}
	r.Attempt++
	r.NotBefore = now.Add(pauseBefore(r))
	r.Intervened, r.FoundOff, r.OffLease, r.NewNodeUID, r.SwitchedOff = false, false, nil, "", false
	r.Isolated, r.OnSeen, r.Level, r.OffLevel = time.Time{}, time.Time{}, 0, 0
	return enter(r, PowerOff, why, now)
}

// pauseBefore is the pause before a later attempt: doubled each time, sixteen times at most, so that
// an interval of a day never overflows.
func pauseBefore(r Run) time.Duration {
	return r.Limits.MinPowerInterval << min(max(0, r.Attempt-2), 16)
}

// retargetNode makes the present Node the target of a later attempt. NewNodeUID notes a Node
// of another boot than the isolated one. The first attempt keeps the UID that it was decided
// on, and a Node of another machine, or of an unknown one, is no target. // I2, I6, I27
func retargetNode(r Run, s Observation) Run {
	if n := s.Node; r.Attempt > 1 && n.Exists == Yes && !isOtherMachine(r.Target, n) && !isUnknownMachine(r.Target, n) {
		if registeredAnew(r) || n.registered() && n.BootID != r.Target.BootID && isTargetMachine(r.Target, n) {
			r.NewNodeUID = n.UID
		}
		r.Target.NodeUID, r.Target.BootID = n.UID, cmp.Or(n.BootID, r.Target.BootID)
		if r.Target.SystemUUID == "" && isKnownMachine(r.Target, n) { // from now on the Node identifies the BMC // I8
			r.Target.SystemUUID = n.SystemUUID
		}
	}
	return r
}

// registeredAnew says whether the target of a later attempt is a Node that registered
// after the power cycle before.
func registeredAnew(r Run) bool { return r.NewNodeUID != "" && r.NewNodeUID == r.Target.NodeUID }

// noEffectYet says whether no power lock and no Off has taken effect at this level.
func noEffectYet(r Run, s Observation) bool {
	return !s.OffAccepted && s.Power.State != bmc.Off && powerLockFree(r, s)
}

// firstAttemptWithoutEffect says whether the power lock or Off of a first attempt has not taken
// effect at this level: until then the run needs the justification it began with. // I4
func firstAttemptWithoutEffect(r Run, s Observation) bool { return r.Attempt == 1 && noEffectYet(r, s) }

// preconditionsUnknown says whether a fresh look leaves open what a first Off needs: the
// justification of a first attempt, the state of the Node in a later one. // I4
func preconditionsUnknown(r Run, s Observation, now time.Time) bool {
	switch {
	case r.Attempt == 1 && s.Justified != Yes, nodeRecovered(r, s):
		return true
	case r.Attempt > 1 && (s.Node.Exists == CannotTell || s.NodesUnseen || s.PowerForbidden != ""):
		return true
	case s.Withdrawn != No && !confirmationActive(r):
		return true
	}
	return s.API != APIReachable || s.Contested != No || noQuorum(r, s) || now.Sub(s.At) > freshFor
}

// nodeRecovered says whether the Node of a later attempt is Ready by now, and no Off is known
// to have been accepted. Its kubelet was slow, and the missed deadline justifies nothing any
// more. // I4
func nodeRecovered(r Run, s Observation) bool {
	return r.Attempt > 1 && !s.OffAccepted && s.Power.State != bmc.Off && s.Node.Ready == Yes && !isOtherMachine(r.Target, s.Node)
}

// hostCameUp says whether the host of such a Node reads On, or works under another name.
func hostCameUp(r Run, s Observation) bool {
	renamed := r.Attempt > 1 && s.RenamedTo != "" && noEffectYet(r, s)
	return renamed || nodeRecovered(r, s) && s.Power.State == bmc.On
}

// cancelOff ends the Off of a later attempt whose host works after all. An Off whose answer was
// lost shows its effect within offSettle. // I20
func cancelOff(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	since := now.Sub(r.Intent.At)
	switch {
	case s.RenamedTo != "":
		return holdRenamed(r, s, now)
	case !powerLockFree(r, s):
		return releasePowerLock(r, s, now)
	case since >= 0 && since < offSettle: // < 0: the clock was set back
		return r, Nothing, poll
	}
	return acceptReadyNode(r, s, now)
}

// acceptReadyNode goes on with a Node that is Ready before a later attempt has begun. What may
// be off is switched on first; then step 4 checks the Node like any that registers.
func acceptReadyNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	const note = "the Node is Ready after all"
	switch {
	case registeredAnew(r), s.Node.UID == r.Target.NodeUID && s.Node.BootID != r.Target.BootID: // its own UID and boot ID would count as the old ones in step 4
		r.Target.NodeUID, r.Target.BootID = "", ""
	case r.Isolation == IsolateDelete && s.Node.UID == r.Target.NodeUID:
		return holdFalseOff(r, "the Node registered again without a reboot: its host was never off", now) // I5, I6
	}
	r.OnSeen, r.Revalidate = now, false
	if r.Intervened {
		return enter(r, PowerOn, note, now)
	}
	return enter(r, AwaitNode, note, now)
}
