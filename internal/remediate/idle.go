package remediate

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// idleRun keeps a run that waits, or that needs a person. Before the isolation it brings the host
// back and ends by itself once the Node is healthy. After it, or when the host stays off on
// purpose, a Held run only waits for an order, and watches that the Off is true.
func idleRun(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	before := (r.Isolated.IsZero() || anyOnPending(r)) && !r.LeaveOff
	if before && r.Intervened {
		r = nextIdleLevel(r, s, now)
	}
	r = recordWait(r, s, now)
	if r.LeaveOff { // also while it is On: what was noted before that says nothing about a later Off
		if why := falseOffReason(r, s); why != "" { // before every order: the next look carries that out // I5
			r.LeaveOff = false
			r, _, _ = holdFalseOff(r, why, now)
			return r, Nothing, poll
		}
		r = recordOffLease(r, s, now)
	}
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
		return holdAddressChanged(r, now)
	case r.Step == Waiting && goesOnAlone(r, s, now):
		return goOnAlone(r, s, now)
	case r.Step == Waiting && r.Reason == reason.TargetChanged && !r.Isolated.IsZero() && s.Withdrawn == Yes: // so the record says that it goes on for nobody // I22
		return stop(r, reason.Withdrawn, r.Note+"; "+s.WithdrawnWhy, now)
	case before && r.Target.BareMetalHost != "" && s.PowerLock == Yes:
		return command(r, ReleasePowerLock, idlePoll, now)
	case r.Level != s.Level: // the next look asks that level
		return r, Nothing, poll
	case before && r.Intervened && needsOn(r, s) && s.Identity != No && !leftToOther(r) && !leftToNext(r, s):
		return command(r, SendOn, idleOnEvery(r, s, now), now)
	case before && overAtRest(r, s, now):
		return endAtRest(r, s, now)
	case !r.HealthySince.IsZero() && now.Sub(r.HealthySince) >= works:
		return finishHealthy(r, s, now)
	}
	return r, Nothing, idlePoll
}

// leftToNext says whether somebody who waited for fenced may work on the host by now: the record shows that it is On, and
// nobody asks for the run, or another remediator is at work. If such a host reads Off later, it may be off because of them. // I22
func leftToNext(r Run, s Observation) bool {
	return r.Settled() && (s.Withdrawn != No || s.Contested != No)
}

// finishHealthy ends an idle run whose host works. If fenced has cut its power on the way, what stopped the run is not
// how it ended. An Off that a device accepted has cut nothing as long as the host runs from the boot that it ran from before.
func finishHealthy(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	const note = "the host is On and its Node Ready"
	if !r.SwitchedOff && len(r.Tries) == 0 || s.Node.BootID == r.Target.BootID {
		return finish(r, Aborted, r.Reason, note, now)
	}
	return finish(r, Aborted, reason.Recovered, fmt.Sprintf("%s; its power was cut and given back, and the Node was not isolated (the run had stopped for %s)", note, r.Reason), now)
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
	pending := outlets || r.Isolated.IsZero() && (r.Attempt == 1 || r.Intervened && !isBackOn(r, s, now))
	tainted := r.Isolation == IsolateTaint && (s.Node.Exists == CannotTell || s.Node.OutOfService)
	return machineReplaced(r, s) && !pending && !tainted && !r.LeaveOff && powerLockFree(r, s) && !anyOnPending(r)
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
// back On. A contradicted confirmation leaves nothing off, however late that is seen. // I26
func runTimedOut(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	const note = "the run took longer than power.runTimeout"
	if why := confirmationContradicted(r, s); why != "" {
		return holdContradicted(r, why, now)
	}
	if r.Intervened && r.Isolated.IsZero() {
		return abandon(r, reason.RunTimeout, note, Held, now)
	}
	return stop(r, reason.RunTimeout, note, now)
}

// A run that stops for a reason that time or a change may heal is Waiting. It holds no slot. Its
// host is brought back where that is pending, as for a Held run. Then it goes on by itself: after the
// isolation at step 3; before it, and where the attempts are used up, at step 1. Nothing
// destructive begins here: for step 1 the run is only marked as due, and package admit orders the
// retry when every gate passes.

// SelfActor is who orders the retry of a Waiting run that is due.
const SelfActor = "fenced"

const (
	longestPause    = 30 // a pause grows to so many times its first length
	exhaustedFactor = 60 // the pauses after AttemptsExhausted are so much longer; they grow to
	longestExhaust  = 24 // so many times their first length
)

// Wait is the pause of a Waiting run. It stays on the record when the run goes on, because the
// next pause is longer.
type Wait struct {
	Since time.Time   `json:"since"`
	Code  reason.Code `json:"reason"`
	Count int         `json:"count"` // pauses of this length class so far
	// CauseSeen: a look since showed the cause. Once a look does not, the first pause is enough.
	CauseSeen bool `json:"causeSeen,omitempty"`
	// Due: the pause is over, and step 1 may begin again if every gate passes.
	Due bool `json:"due,omitempty"`
}

// mayWait says whether a run that stops for a reason goes on by itself. One without a pause to retry
// does not. Nor does one whose host a person left off.
func mayWait(r Run, code reason.Code) bool {
	switch class := reason.ClassOf(code); {
	case r.Limits.RetryInterval <= 0, class != reason.Transient && class != reason.Mended, confirmationActive(r):
		return false
	case r.NoMoreAttempts && code == reason.AttemptsExhausted:
		return false
	}
	return true
}

// beginWait begins a pause. Pauses grow as long as they are of one kind.
func beginWait(r Run, code reason.Code, now time.Time) Run {
	w := Wait{Since: now, Code: code, Count: 1}
	if last := r.Wait; last != nil && (last.Code == reason.AttemptsExhausted) == (code == reason.AttemptsExhausted) {
		w.Count += last.Count
	}
	r.Wait = &w
	return r
}

// pause is how long a Waiting run rests: doubled with each pause, and up to a fifth longer, so
// that many runs with one cause do not all go on at once.
func (w Wait) pause(r Run) time.Duration {
	first, longest := r.Limits.RetryInterval, longestPause
	switch w.Code {
	case reason.AttemptsExhausted:
		first, longest = exhaustedFactor*first, longestExhaust
	case reason.RestoreFailed: // no look shows whether it is mended, and to try again destroys nothing
		longest = 1
	}
	d := first * time.Duration(min(longest, 1<<min(w.Count-1, 8)))
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.ID + strconv.Itoa(w.Count))) // never fails
	d += d / 5 * time.Duration(h.Sum32()%64) / 64
	if r.SwitchedOff { // I15
		d = max(d, r.Limits.MinPowerInterval)
	}
	return d
}

// NextTry is when a Waiting run goes on by itself, at the earliest; zero while its cause lasts.
func (r Run) NextTry() time.Time {
	if r.Step != Waiting || r.Wait == nil || r.Wait.CauseSeen && !r.Wait.Due {
		return time.Time{}
	}
	return r.Wait.Since.Add(r.Wait.pause(r))
}

// recordWait notes what a look says about the cause, and whether step 1 may begin again.
func recordWait(r Run, s Observation, now time.Time) Run {
	if r.Step != Waiting || r.Level != s.Level {
		return r
	}
	w := *r.Wait // the caller's record must not change
	lasts := causeLasts(r, s)
	w.CauseSeen = w.CauseSeen || lasts
	w.Due = !lasts && restartsPowerOff(r) && pauseOver(r, w, s, now)
	if w != *r.Wait {
		r.Wait = &w
	}
	return r
}

// pauseOver says whether a pause has been long enough. Where the cause was seen, and has gone, what
// the run waited for has happened: then the shortest pause is enough.
func pauseOver(r Run, w Wait, s Observation, now time.Time) bool {
	if w.CauseSeen {
		w.Count = 1
	}
	return timeExpired(s, now, w.Since.Add(w.pause(r)))
}

// causeLasts says whether a look shows that going on would fail again. Every way on needs the
// power level. Where there are several, a look shows one of them, which says nothing about the
// others.
func causeLasts(r Run, s Observation) bool {
	switch {
	case s.Withdrawn == Yes && restartsPowerOff(r):
		return true
	case s.Withdrawn != No && r.Reason == reason.Withdrawn: // who asked was told that nothing more is switched // I22
		return true
	case r.Reason == reason.APIUnreachable:
		return s.API != APIReachable
	case notAsRecorded(r, s) != "" && (restartsPowerOff(r) || r.Reason == reason.TargetChanged):
		return true
	case r.WaitsToIsolate():
		return s.API == APIForbidden
	case r.Reason == reason.NodeFinalizer:
		return s.Node.Exists != No
	case r.Reason == reason.PowerForbidden && (s.OwnerWantsOff || r.OtherPowerLock != "" && !(s.Power.State == bmc.On && r.Level == 0)):
		return true
	}
	return r.Limits.Levels <= 1 && powerReason(s, "") != ""
}

// WaitsToIsolate says whether a run waits because its Node could not be isolated. A look then also
// asks for the right to do so.
func (r Run) WaitsToIsolate() bool {
	return r.Step == Waiting && (r.Reason == reason.APIForbidden || r.Reason == reason.IsolationFailed)
}

// restartsPowerOff says whether a Waiting run goes on at step 1: its Node was not isolated, or the
// power cycle has not helped. An abandoned run is only brought back.
func restartsPowerOff(r Run) bool {
	return r.Isolated.IsZero() && r.Abandon == "" || r.Reason == reason.AttemptsExhausted
}

// goesOnAlone says whether a Waiting run can go on with nothing destructive.
func goesOnAlone(r Run, s Observation, now time.Time) bool {
	switch {
	case readyAfterAll(r, s), finalizerGone(r, s):
		return true
	case r.Level != s.Level, restartsPowerOff(r), r.LeaveOff:
		return false
	}
	return !causeLasts(r, s) && pauseOver(r, *r.Wait, s, now)
}

// readyAfterAll says whether the Node of a later attempt is Ready before that has isolated it.
func readyAfterAll(r Run, s Observation) bool {
	return r.Attempt > 1 && r.Isolated.IsZero() && s.Node.Ready == Yes && !s.Node.Deleting && s.Power.State == bmc.On && targetReplaced(r, s) == ""
}

// finalizerGone says whether the deletion of the Node, which a finalizer kept, is complete.
func finalizerGone(r Run, s Observation) bool {
	return r.Reason == reason.NodeFinalizer && s.Node.Exists == No
}

// goOnAlone continues a Waiting run, with the whole time of a run.
func goOnAlone(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	note := "goes on after a pause (" + string(r.Reason) + ")"
	switch {
	case readyAfterAll(r, s):
		r.Reason, r.Note, r.Started = "", "", now
		return acceptReadyNode(r, s, now)
	case finalizerGone(r, s) && r.Isolated.IsZero():
		r.Isolated, r.LeaveOff = now, false
	case r.Abandon != "":
		r.Reason, r.Note, r.Started = r.Abandon, "", now
		return enter(r, PowerOn, note, now)
	}
	return resumeAtPowerOn(r, note, now)
}

// ownRetryHolds says whether fenced's own order to begin step 1 again may be carried out.
func ownRetryHolds(r Run, o Order, now time.Time) bool {
	return r.Step == Waiting && r.Wait.Due && now.Sub(o.At).Abs() <= ownRetryFor
}

// triesKept is how long the start of a try stays in the record: longer than the day that it counts
// for, whatever clocks differ.
const triesKept = 7 * 24 * time.Hour

// recordTry counts the try that ends here against the runs of a day, if it switched the host
// off. It began at step 1: where the run went on at step 3 since, Started is later. // I15
func recordTry(r Run) Run {
	if r.SwitchedOff {
		recent := slices.DeleteFunc(slices.Clone(r.Tries), func(at time.Time) bool { return at.Before(r.Started.Add(-triesKept)) })
		starts := r.Starts()
		r.Tries = append(recent, starts[len(starts)-1].At)
	}
	return r
}

// selfBooted says whether the isolated Node of an idle run has registered again, on the same
// machine and from another boot: somebody switched the host on, or repaired it. // I6
func selfBooted(r Run, s Observation) bool {
	known := takenBack(r) && (!r.Isolated.IsZero() || r.Attempt > 1 || r.Reason == reason.NodeFinalizer || isolatedAfterAll(r, s))
	n, t := s.Node, r.Target
	// Where step 5 has had this Node already, it must be Ready and its host not off, or step 5 and
	// the pause would alternate for ever. If it was not restored, the pause must be over. // L1
	due := r.NewNodeUID != n.UID || r.Reason != reason.RestoreFailed && s.Power.State != bmc.Off && (n.OutOfService || n.Ready == Yes)
	return known && registeredSinceIsolation(r, n) && !n.Deleting && due && n.BootID != t.BootID && isKnownMachine(t, n)
}

// takenBack says whether the Node of an idle run is taken back when it registers: whatever a
// Waiting run waits for, and of a Held one unless what it was proven off by has turned out wrong.
func takenBack(r Run) bool {
	return r.Step == Waiting || r.Reason != reason.FalseOff && r.Reason != reason.ConfirmedOffContradicted && !anyOnPending(r)
}

// resumeSelfBooted goes on at step 5, without an order.
func resumeSelfBooted(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	if !powerLockFree(r, s) {
		return releasePowerLock(r, s, now)
	}
	r.Reason, r.Note, r.Started, r.OnSeen, r.LeaveOff = "", "", now, now, false
	r.NewNodeUID, r.Abandon, r.AbandonTo = s.Node.UID, "", ""
	if r.Attempt == 1 && r.Isolated.IsZero() { // its isolation was done after all
		r.Isolated = now
	}
	return enter(r, RestoreNode, "the host came back by itself", now)
}
