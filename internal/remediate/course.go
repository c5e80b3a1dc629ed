package remediate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// heldRun keeps a run that needs a person. Before the isolation it brings the host back and ends
// by itself once the Node is healthy. After it, or when the host stays off on purpose, it only
// waits for an order.
func heldRun(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	before := (r.Isolated.IsZero() || anyOnPending(r)) && !r.LeaveOff
	if before && r.Intervened {
		r = nextHeldLevel(r, s, now)
	}
	healthy := s.Power.State == bmc.On && s.Level == 0 && r.Level == 0 && s.Node.Ready == Yes && s.Node.UID == r.Target.NodeUID &&
		!s.Node.Deleting && !s.Node.OutOfService && powerLockFree(r, s) && !anyOnPending(r)
	// A FalseOff host stays frozen (I5). After a first cycle labels may be missing.
	if !healthy || !before || r.Reason == reasonFalseOff || r.Attempt > 1 {
		r.HealthySince = time.Time{}
	} else if r.HealthySince.IsZero() {
		r.HealthySince = now
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
	case before && r.Target.BareMetalHost != "" && s.PowerLock == Yes:
		return command(r, ReleasePowerLock, idlePoll, now)
	case r.Level != s.Level: // the next look asks that level
		return r, Nothing, poll
	case before && r.Intervened && needsOn(r, s) && s.Identity != No:
		return command(r, SendOn, resendHeldOn, now)
	case !r.HealthySince.IsZero() && now.Sub(r.HealthySince) >= healthyFor:
		return finish(r, Aborted, r.Reason, "the host is On and its Node Ready", now)
	}
	return r, Nothing, idlePoll
}

// runTimedOut ends a run whose whole time is over; if the Node was not isolated, with the host
// back On.
func runTimedOut(r Run, now time.Time) (Run, Action, time.Duration) {
	const note = "the run took longer than power.runTimeout"
	if r.Intervened && r.Isolated.IsZero() {
		return abandon(r, reasonRunTimeout, note, Held, now)
	}
	return stopAsHeld(r, reasonRunTimeout, note, now)
}

// resumeAfterOutage notes that the API is back. Step 2 gets its whole time again. In steps 4 and
// 5, which could not see the Node, the outage does not count.
func resumeAfterOutage(r Run, now time.Time) Run {
	switch r.Step {
	case DeleteNode:
		r.StepStarted = now
	case AwaitNode, RestoreNode:
		r.OnSeen = r.OnSeen.Add(now.Sub(later(r.APILost, r.OnSeen)))
		r.StepStarted = r.StepStarted.Add(now.Sub(later(r.APILost, r.StepStarted)))
	}
	r.APILost = time.Time{}
	return r
}

// detectLateIsolation resumes an abandoned cycle whose isolation was done although its answer
// was lost: the Node is gone, or carries our taint.
func detectLateIsolation(r Run, s Observation, now time.Time) Run {
	gone := s.Node.Exists == No && r.Target.NodeUID != "" || s.Node.Exists == Yes && s.Node.UID != r.Target.NodeUID
	tainted := r.Isolation == IsolateTaint && s.Node.OutOfService
	if r.Abandon != "" && (gone || tainted) {
		r.Isolated, r.Abandon, r.AbandonTo, r.Reason, r.Note = now, "", "", "", ""
	}
	return r
}

// powerLockHeld says whether no other power owner may switch the host on: our power lock is set,
// or there is no other owner. powerLockFree says whether our power lock is not set.
func powerLockHeld(r Run, s Observation) bool {
	return r.Target.BareMetalHost == "" || s.PowerLock == Yes
}
func powerLockFree(r Run, s Observation) bool {
	return r.Target.BareMetalHost == "" || s.PowerLock == No
}

// offProven is the proof that step 2 needs. // I1
func offProven(r Run, s Observation, now time.Time) bool {
	return r.Intervened && s.OffAccepted && s.Identity == Yes && s.Proof.Proven(now)
}

// leaseQuiet says whether the Lease stood still long enough after the first Off. A Lease that was
// renewed shortly before might be renewed again by a running host.
func leaseQuiet(r Run, s Observation, now time.Time) bool {
	if !s.Lease.Known || r.OffLease == nil {
		return false
	}
	l := *r.OffLease
	recent := (l.KubeletReporting || s.Proof.Since().Sub(l.RenewTime) < l.recentFor()) && l.ResourceVersion != ""
	since := later(s.Proof.Since(), l.Seen) // while the API did not answer, nothing showed that it stood still
	return !recent || now.Sub(since) >= l.quietFor()
}

// registeredSinceIsolation says whether the present Node registered after the isolation.
func registeredSinceIsolation(r Run, n Node) bool {
	return n.Exists == Yes && n.BootID != "" && (r.Isolation == IsolateTaint || n.UID != r.Target.NodeUID)
}

// isTargetMachine says whether a Node has the system UUID of the run's machine, if that is
// known. // I6
func isTargetMachine(r Run, n Node) bool {
	return r.Target.SystemUUID == "" || n.SystemUUID == r.Target.SystemUUID
}

// leaseAdvanced says whether the Lease advanced since the first Off read. // I5
func leaseAdvanced(r Run, s Observation) bool {
	return r.OffLease != nil && s.Lease.Known && s.Lease.ResourceVersion != "" &&
		s.Lease.ResourceVersion != r.OffLease.ResourceVersion
}

// powerReason is the reason code of a failed step 1: why the BMC could not be asked, or what it
// last refused, otherwise fallback.
func powerReason(s Observation, fallback string) string {
	switch {
	case s.LevelRefusal != "":
		return s.LevelRefusal
	case s.PowerError != "":
		return reasonBMC + string(s.PowerError)
	}
	return fallback
}

func powerReadText(s Observation) string {
	if s.LevelRefusal != "" {
		return "failed (" + s.LevelRefusal + ")"
	}
	if s.PowerError != "" {
		return "failed (" + string(s.PowerError) + ")"
	}
	if s.Power.Partial {
		return "On in part (" + s.Power.Raw + ")"
	}
	if s.Power.State == bmc.Unknown {
		return "Unknown (" + s.Power.Raw + ")"
	}
	return s.Power.State.String()
}

// untilRead is the time until another power read can complete the proof. After that the step
// waits for something else.
func untilRead(s Observation, now time.Time) time.Duration {
	d := s.Proof.NextRead(now).Sub(now)
	if d <= 0 {
		return poll
	}
	return max(50*time.Millisecond, min(poll, d))
}

// noQuorum says whether it is not known that etcd keeps its quorum without this control-plane
// host. // I12
func noQuorum(r Run, s Observation) bool { return r.ControlPlane && s.Quorum != Yes }

// command gives an action once per interval. The intent is in the record before the engine
// acts. // I19
func command(r Run, a Action, every time.Duration, now time.Time) (Run, Action, time.Duration) {
	if since := now.Sub(r.Intent.At); r.Intent.Action == a && since >= 0 && since < every { // < 0: the clock was set back
		return r, Nothing, min(poll, every-since)
	}
	r.Intent = Intent{Action: a, At: now}
	return r, a, 0
}

// enter goes to a step and writes the journal. The note says why the step before was left, if
// not because its goal was reached.
func enter(r Run, to Step, note string, now time.Time) (Run, Action, time.Duration) {
	if n := len(r.Steps); n > 0 {
		r.Steps[n-1].Ended, r.Steps[n-1].Note = now, note
	}
	r.Step, r.StepStarted, r.Intent = to, now, Intent{} // a command's interval belongs to one step
	if to != PowerOff && to != DeleteNode {
		r = expireConfirmation(r)
	}
	if to == PowerOn || to == Held {
		r.Level = r.OffLevel // all levels from there down are switched on again // I20
	}
	if !to.Ended() { // Held has an entry too: later notes must not overwrite why the step before was left
		r.Steps = append(r.Steps, Visit{Step: to, Attempt: r.Attempt, Started: now})
	}
	return r, Nothing, 0
}

// holdRenamed holds a run whose host works under another name: it is not cycled. // I6
func holdRenamed(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	return stopAsHeld(r, reasonNodeRenamed, "the host registered as Node "+s.RenamedTo, now)
}

// pausedReason and pausedNote are the reason and note of a run that ends because of a pause or a
// hold of its target.
func pausedReason(s Observation) string { return cmp.Or(s.PausedReason, reasonPaused) }

func pausedNote(s Observation) string {
	if s.PausedReason != "" {
		return s.PausedWhy
	}
	return strings.TrimSuffix("paused before the point of no return: "+s.PausedWhy, ": ")
}

// stopAsHeld keeps the run for a person. While a manual confirmation is active, the host is left
// as it is, whatever stops the run: the person may be working inside it, and only a person
// switches it on again. // I26
func stopAsHeld(r Run, reason, note string, now time.Time) (Run, Action, time.Duration) {
	if confirmationActive(r) && !voidsConfirmation[reason] {
		r.LeaveOff = true
	}
	r.Reason, r.Note, r.Abandon, r.AbandonTo = reason, note, "", ""
	return enter(r, Held, reason+": "+note, now)
}

func finish(r Run, end Step, reason, note string, now time.Time) (Run, Action, time.Duration) {
	if anyOnPending(r) { // I20
		return stopAsHeld(r, reasonOutletContradicted, onPendingNote, now)
	}
	r.Reason, r.Note, r.Ended = reason, note, now
	return enter(r, end, note, now)
}

// abandon goes back to On without isolation, and then to the given end. A later attempt has
// isolated a Node before, so the run is Held in any case.
func abandon(r Run, reason, note string, to Step, now time.Time) (Run, Action, time.Duration) {
	if confirmationActive(r) {
		return stopAsHeld(r, reason, strings.TrimPrefix(note+"; ", "; ")+"left off on the confirmation by "+r.Confirmed.Actor+"; unfence brings it back", now)
	}
	if r.Attempt > 1 {
		to = Held
	}
	r.Abandon, r.AbandonTo, r.Reason, r.Note, r.LeaveOff = reason, to, reason, note, false
	return enter(r, PowerOn, reason+": "+note, now)
}

// AbortUnsaved ends a run whose first record may not have been saved. Nothing was done for it,
// and nothing will be.
func AbortUnsaved(r Run, now time.Time) Run {
	r, _, _ = finish(r, Aborted, reasonNotSaved, "the store did not confirm that it saved the run", now)
	return r
}

// Begin gives the record of a new run its first step.
func Begin(r Run, now time.Time) Run {
	r.Attempt, r.Started = 1, now
	first := PowerOff
	if r.Strategy == DeleteMachine {
		first = Reprovision
	}
	r, _, _ = enter(r, first, "", now)
	if r.Level > 0 { // the probe before the run has tried the lower levels
		why := fmt.Sprintf("power level 1 did not answer before the run; it begins at level %d", r.Level+1)
		r.Steps = slices.Insert(r.Steps, len(r.Steps)-1, Visit{Step: first, Attempt: 1, Started: now, Ended: now, Note: why})
	}
	return r
}
