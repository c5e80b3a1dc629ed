package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// idleRun keeps a run that waits, or that needs a person. Before the isolation it brings the host
// back and ends by itself once the Node is healthy. After it, or when the host stays off on
// purpose, a Held run only waits for an order.
func idleRun(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	before := (r.Isolated.IsZero() || anyOnPending(r)) && !r.LeaveOff
	if before && r.Intervened {
		r = nextIdleLevel(r, s, now)
	}
	r = recordWait(r, s, now)
	if !isHealthy(r, s) {
		r.HealthySince = time.Time{}
	} else if r.HealthySince.IsZero() {
		r.HealthySince = now
	}
	works := healthyFor
	if r.Step == Waiting {
		works = waitsHealthy
	}
	switch {
	case r.Abort != nil && r.Abort.AsIs:
		return closeAsIs(r, s, now)
	case restoreRequested(r):
		return handleRestore(r, now)
	case hasNewConfirmation(r):
		return acceptConfirmation(r, s, now)
	case r.Retry != nil:
		return acceptRetry(r, s, now)
	case selfBooted(r, s):
		return resumeSelfBooted(r, s, now)
	case replacedByOwner(r, s, now):
		return finish(r, Reprovisioned, r.Reason, "the Machine was deleted or replaced", now)
	case r.Step == Held && takenBack(r) && readyAfterAll(r, s):
		return goOnAlone(r, s, now)
	case r.Step == Waiting && s.LevelRefusal == reason.AddressChanged: // nothing that fenced may wait for brings it back // I10
		return stop(r, reason.AddressChanged, "the host leads to another BMC or outlet than when the run began", now)
	case r.Step == Waiting && goesOnAlone(r, s, now):
		return goOnAlone(r, s, now)
	case r.Step == Waiting && r.Reason == reason.TargetChanged && !r.Isolated.IsZero() && s.Withdrawn == Yes: // so the record says that it goes on for nobody // I22
		return stop(r, reason.Withdrawn, r.Note+"; "+s.WithdrawnWhy, now)
	case before && r.Target.BareMetalHost != "" && s.PowerLock == Yes:
		return command(r, ReleasePowerLock, idlePoll, now)
	case r.Level != s.Level: // the next look asks that level
		return r, Nothing, poll
	case before && r.Intervened && needsOn(r, s) && s.Identity != No && !leftToOther(r):
		return command(r, SendOn, idleOnEvery(r, s, now), now)
	case before && overAtRest(r, s, now):
		return endAtRest(r, s, now)
	case !r.HealthySince.IsZero() && now.Sub(r.HealthySince) >= works:
		return finish(r, Aborted, r.Reason, "the host is On and its Node Ready", now)
	}
	return r, Nothing, idlePoll
}

// idleOnEvery is the time between two On commands of an idle run. It grows where the Machine is gone: whoever
// deleted it may want the host off, and fenced does not fight that for ever.
func idleOnEvery(r Run, s Observation, now time.Time) time.Duration {
	if !machineReplaced(r, s) {
		return resendHeldOn
	}
	return max(resendHeldOn, min(longestPause*resendHeldOn, now.Sub(r.StepStarted)/4))
}

// isHealthy says whether the host of an idle run works, so that nothing is left to do. That is so
// before the isolation alone: after it, or after a first power cycle, labels may be missing. Whoever
// wanted the host off has let it come on again. A FalseOff host stays frozen. // I5
func isHealthy(r Run, s Observation) bool {
	n := s.Node
	works := s.Power.State == bmc.On && s.Level == 0 && r.Level == 0 && n.Ready == Yes && !n.Deleting && !n.OutOfService
	same := n.UID == r.Target.NodeUID || isKnownMachine(r.Target, n) && !isolationBegan(r, s)
	return works && same && r.Isolated.IsZero() && r.Attempt == 1 && r.Reason != reason.FalseOff && powerLockFree(r, s) && !anyOnPending(r)
}

// replacedByOwner says whether the Machine of an idle run is gone or replaced, after the isolation.
// Its owner has taken over the host, so no other power cycle and no Node of it will come. What fenced
// has switched off before an isolation, or leaves off on purpose, its taint, and outlets that the owner
// cannot switch on come first. // I20
func replacedByOwner(r Run, s Observation, now time.Time) bool {
	outlets := r.OffLevel > 0 && (s.Level != r.Level || s.Power.State != bmc.On)
	owed := outlets || r.Isolated.IsZero() && (r.Attempt == 1 || r.Intervened && !isBackOn(r, s, now))
	tainted := r.Isolation == IsolateTaint && (s.Node.Exists == CannotTell || s.Node.OutOfService)
	return machineReplaced(r, s) && !owed && !tainted && !r.LeaveOff && powerLockFree(r, s) && !anyOnPending(r)
}

// isBackOn says whether the host of an idle run is On for good.
func isBackOn(r Run, s Observation, now time.Time) bool {
	on := s.Power.State == bmc.On && !s.Power.Partial && s.Identity == Yes && r.Level == 0 && s.Level == 0
	return on && timeExpired(s, now, r.StepStarted.Add(offSettle))
}

// overAtRest says whether an idle run that has not isolated its Node is over: nobody asks for it any
// more, or another object has replaced one of the record. Its host must be as the run found it:
// never touched, or back On for good. A run that needs a person is not over because of that.
func overAtRest(r Run, s Observation, now time.Time) bool {
	replaced := r.Attempt == 1 && notAsRecorded(r, s) != ""
	if s.Withdrawn != Yes && !replaced || !r.Isolated.IsZero() || !powerLockFree(r, s) || anyOnPending(r) || reason.ClassOf(r.Reason) == reason.Person {
		return false
	}
	return !r.Intervened && r.OffLevel == 0 || isBackOn(r, s, now)
}

// endAtRest ends such a run. After a power cycle, or where the isolation may have been done without an
// answer, it does not end, unless its Machine is gone or its name another machine's: the Node may register
// again, and must then be restored. // I20
func endAtRest(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	code, note := reason.Withdrawn, s.WithdrawnWhy
	if s.Withdrawn != Yes {
		code, note = reason.TargetChanged, notAsRecorded(r, s)
	}
	owesNode := mayBeIsolated(r, s) && !machineReplaced(r, s) && !isOtherMachine(r.Target, s.Node)
	switch {
	case r.Attempt == 1 && !owesNode:
		return finish(r, Aborted, code, note, now)
	case r.Reason == code, r.Reason == reason.Withdrawn, r.Reason == reason.AttemptsExhausted:
		return r, Nothing, idlePoll
	}
	return stop(r, code, note, now)
}

// runTimedOut ends a run whose whole time is over; if the Node was not isolated, with the host
// back On.
func runTimedOut(r Run, now time.Time) (Run, Action, time.Duration) {
	const note = "the run took longer than power.runTimeout"
	if r.Intervened && r.Isolated.IsZero() {
		return abandon(r, reason.RunTimeout, note, Held, now)
	}
	return stop(r, reason.RunTimeout, note, now)
}
