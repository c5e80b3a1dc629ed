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
	healthy := s.Power.State == bmc.On && s.Level == 0 && r.Level == 0 && s.Node.Ready == Yes && (s.Node.UID == r.Target.NodeUID || isKnownMachine(r.Target, s.Node)) &&
		!s.Node.Deleting && !s.Node.OutOfService && powerLockFree(r, s) && !anyOnPending(r)
	// A FalseOff host stays frozen (I5). After a first cycle labels may be missing.
	if !healthy || !before || r.Reason == reason.FalseOff || r.Attempt > 1 {
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
	case before && r.Target.BareMetalHost != "" && s.PowerLock == Yes:
		return command(r, ReleasePowerLock, idlePoll, now)
	case r.Level != s.Level: // the next look asks that level
		return r, Nothing, poll
	case before && r.Intervened && needsOn(r, s) && s.Identity != No:
		return command(r, SendOn, resendHeldOn, now)
	case before && withdrawnAtRest(r, s, now):
		return endWithdrawn(r, s, now)
	case !r.HealthySince.IsZero() && now.Sub(r.HealthySince) >= works:
		return finish(r, Aborted, r.Reason, "the host is On and its Node Ready", now)
	}
	return r, Nothing, idlePoll
}

// replacedByOwner says whether the Machine of an idle run is gone or replaced, after the isolation. Its owner has
// taken over the host, so no other power cycle and no Node of it will come. What fenced has
// switched off before an isolation, and not brought back yet, or leaves off on purpose, comes first. // I20
func replacedByOwner(r Run, s Observation, now time.Time) bool {
	owed := r.Isolated.IsZero() && (r.Attempt == 1 || r.Intervened && !isBackOn(r, s, now))
	return machineReplaced(r, s) && !owed && !r.LeaveOff && powerLockFree(r, s) && !anyOnPending(r)
}

// isBackOn says whether the host of an idle run is On for good.
func isBackOn(r Run, s Observation, now time.Time) bool {
	return s.Power.State == bmc.On && !s.Power.Partial && s.Identity == Yes && r.Level == 0 && s.Level == 0 && timeExpired(s, now, r.StepStarted.Add(offSettle))
}

// withdrawnAtRest says whether nobody asks any more for an idle run that has not isolated its Node,
// and its host is as the run found it: never touched, or back On for good. A run that needs a
// person is not over because its check is.
func withdrawnAtRest(r Run, s Observation, now time.Time) bool {
	if s.Withdrawn != Yes || !r.Isolated.IsZero() || !powerLockFree(r, s) || anyOnPending(r) || reason.ClassOf(r.Reason) == reason.Person {
		return false
	}
	return !r.Intervened && r.OffLevel == 0 || isBackOn(r, s, now)
}

// endWithdrawn ends such a run. After a first power cycle it does not end: the Node may register
// again, and must then be restored.
func endWithdrawn(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	switch {
	case r.Attempt == 1:
		return finish(r, Aborted, reason.Withdrawn, s.WithdrawnWhy, now)
	case r.Reason == reason.Withdrawn || r.Reason == reason.AttemptsExhausted:
		return r, Nothing, idlePoll
	}
	return stop(r, reason.Withdrawn, s.WithdrawnWhy, now)
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
