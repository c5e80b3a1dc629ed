package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// takeOrders carries out what part of a person's orders needs no look, and drops orders that came
// too late. The steps carry out the rest.
func takeOrders(r Run, now time.Time) Run {
	if r.Abort != nil && !r.Step.Idle() {
		r = takeAbort(r)
	}
	if r.Retry != nil && !r.Step.Idle() {
		if r.Step == PowerOff && !r.Intervened && now.Before(r.NotBefore) {
			r.NotBefore = now
		}
		r.Retry = nil
	}
	if hasNewConfirmation(r) && !r.Step.Idle() {
		begins := r.Step == PowerOff && !r.TouchedHost()
		r.Confirmation = &OffConfirmation{Given: r.Confirmed.At, Expired: !begins}
	}
	return r
}

// takeAbort takes an abort where nothing is to be taken back. A cycle on its way back to On ends
// Aborted. One that has isolated is completed, without another attempt and without step 6.
func takeAbort(r Run) Run {
	switch {
	case r.Abort.AsIs:
		r.Abort = nil
	case r.Step == PowerOn && r.Abandon != "" && r.Attempt == 1:
		r = forbidMoreAttempts(r) // the isolation may turn out to have been done
		r.Abandon, r.AbandonTo = reason.Aborted, Aborted
		r.Reason, r.Note, r.Abort = reason.Aborted, orderNote("aborted", *r.Abort), nil
	case r.Step == PowerOn && r.Abandon != "": // it will be Waiting or Held, and carried out there
	case r.Step == PowerOn, r.Step == AwaitNode, r.Step == RestoreNode:
		r = forbidMoreAttempts(r)
		r.Abort = nil
	}
	return r
}

func orderNote(verb string, o Order) string { return verb + " by " + o.Actor + ": " + o.Reason }

// restoreRequested says whether a person wants the host back: unfence or abort.
func restoreRequested(r Run) bool { return r.Unfence != nil || r.Abort != nil }

// forbidMoreAttempts lets nothing destructive begin after the present attempt.
func forbidMoreAttempts(r Run) Run {
	r.Limits.MaxAttempts, r.Limits.Reprovision, r.NoMoreAttempts = min(r.Limits.MaxAttempts, r.Attempt), false, true
	return r
}

// handleRestore carries out an unfence or an abort. Before the isolation the cycle is abandoned;
// after it the run goes on at step 3.
func handleRestore(r Run, now time.Time) (Run, Action, time.Duration) {
	var code reason.Code
	var note string
	if r.Abort != nil {
		r, code, note = forbidMoreAttempts(r), reason.Aborted, orderNote("aborted", *r.Abort)
	} else {
		code, note = reason.Unfenced, orderNote("unfenced", *r.Unfence)
	}
	r.Unfence, r.Abort, r.LeaveOff, r.OffOnly = nil, nil, false, false
	r = expireConfirmation(r) // this order is newer
	switch {
	case r.Strategy == DeleteMachine:
		return finish(r, Aborted, code, note, now)
	case r.Isolated.IsZero() && r.Attempt == 1:
		return dropAttempt(r, code, note, now)
	}
	// The person's order decides: after a later attempt, or where a host was falsely believed
	// off, the present Node is the one to restore.
	if r.Attempt > 1 || r.Reason == reason.FalseOff || r.Reason == reason.ConfirmedOffContradicted {
		r.Target.NodeUID, r.Target.BootID = "", ""
	}
	return resumeAtPowerOn(r, note, now)
}

// resumeAtPowerOn goes on at step 3, with the whole time of a run.
func resumeAtPowerOn(r Run, note string, now time.Time) (Run, Action, time.Duration) {
	r.Reason, r.Note, r.Started, r.OnSeen = "", "", now, now
	return enter(r, PowerOn, note, now)
}

// dropAttempt ends an attempt that has not isolated: at once if nothing was touched, otherwise
// with the host back On.
func dropAttempt(r Run, code reason.Code, note string, now time.Time) (Run, Action, time.Duration) {
	if !r.TouchedHost() {
		return finish(r, Aborted, code, note, now)
	}
	return abandon(r, code, note, Aborted, now)
}

// CanAbort says whether a run can be aborted, or why not.
func CanAbort(r Run) (ok bool, why string) {
	if !r.Open() {
		return false, "the run has ended"
	}
	return true, ""
}

// CanClose says whether a run can be ended with the host left as it is, or why not.
func CanClose(r Run) (ok bool, why string) {
	switch {
	case !r.Open():
		return false, "the run has ended"
	case !r.Step.Idle():
		return false, "the run is in progress, at step " + string(r.Step) + "; only a Waiting or Held run can be closed as it is"
	case anyOnPending(r):
		return false, onPendingNote
	}
	return true, ""
}

// closeAsIs ends a Waiting or Held run and leaves the host as it is. Our power lock is released first, unless it is
// in a cluster that may never answer again. // L1
func closeAsIs(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	note := orderNote("closed as it is", *r.Abort) + "; last power read: " + powerReadText(s)
	if ok, _ := CanClose(r); !ok {
		r.Abort = nil
		return r, Nothing, poll
	}
	if !powerLockFree(r, s) {
		gone := s.PowerLock == CannotTell && s.API != APIReachable && timeExpired(s, now, r.APILost.Add(r.Limits.RunTimeout))
		if !s.OtherCluster && !gone {
			return releasePowerLock(r, s, now)
		}
		note += "; BareMetalHost " + r.Target.BareMetalHost + " may still carry the power lock, which could not be read"
	}
	r.Abort, r.LeaveOff = nil, false
	return finish(r, Aborted, reason.ClosedAsIs, note, now)
}

// releasePowerLock takes our power lock off the BareMetalHost.
func releasePowerLock(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	if s.PowerLock == Yes {
		return command(r, ReleasePowerLock, resendWrite, now)
	}
	return r, Nothing, poll // it cannot be read
}

// CanRetry says whether a run has something to retry, or why not. Package admit refuses a retry
// also while the host is frozen.
func CanRetry(r Run) (ok bool, why string) {
	switch {
	case !r.Open():
		return false, "the run has ended"
	case r.Step == PowerOff && !r.Intervened && !r.NotBefore.IsZero():
		return true, ""
	case !r.Step.Idle():
		return false, "the run is in progress, at step " + string(r.Step)
	case anyOnPending(r):
		return false, onPendingNote
	case r.LeaveOff && r.Confirmed != nil && r.Isolated.IsZero():
		return false, "the host is left off on a manual confirmation; use confirm-off, unfence or abort" // I26
	case r.LeaveOff && !r.Isolated.IsZero():
		return false, "the host is off on purpose (" + string(r.Reason) + "); unfence brings it back"
	}
	return true, ""
}

// RetryCutsPower says whether a retry begins another power cycle, and does not only bring the host back.
func RetryCutsPower(r Run) bool { return r.Isolated.IsZero() || r.Reason == reason.AttemptsExhausted }

// acceptRetry resumes a Waiting or Held run: at step 1, with all preconditions read again, or at
// step 3. Where the attempts are used up it gets one more. fenced's own order is only accepted
// while the run is due, and while the gates that were asked for it are fresh: another process may
// find it in the record later. // I4, I11
func acceptRetry(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	retry := *r.Retry
	note, self := orderNote("retried", retry), retry.Actor == SelfActor
	r.Retry = nil
	ok, _ := CanRetry(r)
	switch {
	case !ok, interlockAt(stageHeld, r, s).effect != proceed, self && !ownRetryHolds(r, retry, now): // I5, I22, I23
		return r, Nothing, poll
	case self:
		r = recordTry(r)
	default:
		r = renewManual(r, retry)
		r.NoMoreAttempts, r.Wait = false, nil
	}
	switch {
	case !RetryCutsPower(r):
		return resumeAtPowerOn(r, note, now)
	case r.Isolated.IsZero():
		return restartPowerOff(r, note, now)
	default: // the attempts are used up
		r.Limits.MaxAttempts, r.Reason, r.Note, r.Started = r.Attempt+1, "", "", now
		r, a, wait := nextAttempt(r, s, note, now)
		r.NotBefore = now
		return r, a, wait
	}
}

// renewManual makes the order of a run that was fenced by hand as new as a person's retry. fenced's
// own retry renews nothing. // I4
func renewManual(r Run, retry Order) Run {
	if r.Manual != nil {
		o := *r.Manual // the caller's record must not change
		o.At = retry.At
		r.Manual = &o
	}
	return r
}

// restartPowerOff begins step 1 again at the first level. What may still be off because of us
// stays on the record, and preflight checks all preconditions again.
func restartPowerOff(r Run, note string, now time.Time) (Run, Action, time.Duration) {
	r.Reason, r.Note, r.Started, r.NotBefore, r.HealthySince = "", "", now, time.Time{}, time.Time{}
	r.OffLease, r.LeaveOff, r.Revalidate, r.SwitchedOff = nil, false, r.Intervened, false
	r.Abandon, r.AbandonTo = "", ""
	r, a, wait := enter(r, PowerOff, note, now)
	r.Level = 0
	return r, a, wait
}

// voidsConfirmation are the reasons of a stopped run whose confirmation was wrong, or where another
// machine may be off by mistake. No host is left off for them.
var voidsConfirmation = map[reason.Code]bool{reason.ConfirmedOffContradicted: true, reason.FalseOff: true, reason.OutletContradicted: true}

// OffConfirmation is what became of a manual confirmation that the host is off: Run.Confirmed.
type OffConfirmation struct {
	Given time.Time `json:"given"` // Confirmed.At of the confirmation that this is about
	// Lease is the Node's at the first look after the confirmation, which was at Since. It
	// must not advance. // I5
	Lease Lease     `json:"lease"`
	Since time.Time `json:"since,omitzero"`
	// Expired: it does not count any more. Something contradicted it, or the run has left
	// the steps that needed it.
	Expired bool `json:"spent,omitempty"`
}

// CanConfirm says whether a manual confirmation can take the place of a proof in this run, or
// why not.
func CanConfirm(r Run) (ok bool, why string) {
	switch {
	case !r.Open():
		return false, "the run has ended"
	case r.Strategy == DeleteMachine:
		return false, "the run needs no proof of off"
	case !r.Isolated.IsZero():
		return false, "the Node was isolated already"
	case !r.Step.Idle():
		return false, "the run is in progress, at step " + string(r.Step) + "; a confirmation is accepted once it is Waiting or Held"
	case r.LeaveOff && r.Confirmed == nil: // else it was left off on a confirmation, which may be given again
		return false, "the host is off on purpose (" + string(r.Reason) + ")"
	case anyOnPending(r):
		return false, onPendingNote
	}
	return true, ""
}

// hasNewConfirmation says whether there is a confirmation that the run has not taken in yet.
func hasNewConfirmation(r Run) bool {
	return r.Confirmed != nil && (r.Confirmation == nil || !r.Confirmation.Given.Equal(r.Confirmed.At))
}

// confirmationActive says whether a manual confirmation counts. // I26
func confirmationActive(r Run) bool {
	return r.Confirmed != nil && r.Confirmation != nil && !r.Confirmation.Expired
}

// HasConfirmation says whether a manual confirmation counts, or was just given. Package run
// then also asks the lower power levels, because any On read contradicts it. // I26
func (r Run) HasConfirmation() bool { return confirmationActive(r) || hasNewConfirmation(r) }

// acceptConfirmation begins step 1 of a Waiting or Held run again, with a manual confirmation.
func acceptConfirmation(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	ok, _ := CanConfirm(r)
	r.Confirmation = &OffConfirmation{Given: r.Confirmed.At, Expired: !ok || interlockAt(stageHeld, r, s).effect != proceed}
	if r.Confirmation.Expired {
		return r, Nothing, poll
	}
	if why := confirmationContradicted(r, s); why != "" {
		r, _, _ = holdContradicted(r, why, now)
		return r, Nothing, poll
	}
	return restartPowerOff(r, orderNote("confirmed off", *r.Confirmed), now)
}

// recordLeaseBaseline notes the Lease at the first look after the confirmation.
func recordLeaseBaseline(r Run, s Observation, now time.Time) Run {
	if confirmationActive(r) && r.Confirmation.Since.IsZero() && s.API == APIReachable && s.Lease.Known {
		w := *r.Confirmation // the caller's record must not change
		w.Lease, w.Since = s.Lease, now
		r.Confirmation = &w
	}
	return r
}

// expireConfirmation ends an active confirmation.
func expireConfirmation(r Run) Run {
	if confirmationActive(r) {
		w := *r.Confirmation
		w.Expired = true
		r.Confirmation = &w
	}
	return r
}

// confirmationContradicted returns what contradicts an active confirmation, or an empty string.
func confirmationContradicted(r Run, s Observation) string {
	switch w := r.Confirmation; {
	case !confirmationActive(r):
	case s.Power.State == bmc.On:
		return levelName(r, s) + " reads " + powerReadText(s)
	case s.LowerLevelOn != "":
		return s.LowerLevelOn
	case !w.Since.IsZero() && s.Lease.renewedSince(w.Lease):
		return "the Node's Lease was renewed since"
	case s.Node.Ready == Yes:
		return "the Node is Ready"
	}
	return ""
}

// ContradictsConfirmation returns what in a look contradicts an active confirmation, or an empty
// string. // I26
func ContradictsConfirmation(r Run, s Observation) string {
	return confirmationContradicted(r, withoutOtherLevels(r, s))
}

func holdContradicted(r Run, why string, now time.Time) (Run, Action, time.Duration) {
	return stop(r, reason.ConfirmedOffContradicted, why+", although "+r.Confirmed.Actor+" confirmed that the host is off", now)
}

// levelUnreadable says whether the present level will prove nothing, so that a confirmation may
// take its place. A level that answers has its whole time.
func levelUnreadable(r Run, s Observation, now time.Time) bool {
	if offProven(r, s, now) {
		return false
	}
	return levelUnusable(s) || s.PowerError != "" && now.Sub(r.StepStarted) >= answerTime || timeExpired(s, now, r.Deadline())
}

// powerOffConfirmed is step 1 where the present level cannot be read and a confirmation is active.
// The next level is tried. After the last one the confirmation counts, as soon as the Lease has
// stood still. A person's order needs no justification; all other preconditions hold. // I26
func powerOffConfirmed(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	found := interlockAt(stageConfirmed, r, s)
	switch {
	case found.ends():
		return found.apply(r, s, now)
	case hasNextLevel(r):
		return nextLevel(r, s, "it cannot be read", now)
	case timeExpired(s, now, r.Deadline().Add(r.Limits.APITimeout)):
		return dropAttempt(r, reason.NotJudged, "what the confirmation by "+r.Confirmed.Actor+" still needs could not be read or done in time", now)
	case s.API != APIReachable, s.Contested != No, s.Node.Exists == CannotTell, noQuorum(r, s), !s.Lease.Known, now.Sub(s.At) > freshFor:
		return r, Nothing, poll
	}
	r = retargetNode(r, s)
	r.Intervened, r.Revalidate = true, false
	switch {
	case r.Target.BareMetalHost != "" && s.PowerLock == No: // else Metal3 would switch it on
		return command(r, SetPowerLock, resendWrite, now)
	case !powerLockHeld(r, s), now.Sub(r.Confirmation.Since) < r.Confirmation.Lease.quietFor():
		return r, Nothing, poll
	}
	lease := r.Confirmation.Lease
	r.Proof, r.OffLease = ProofHuman, &lease
	return enter(r, DeleteNode, orderNote("confirmed off", *r.Confirmed), now)
}

// IsolatesOnConfirmation says whether the run isolates on a manual confirmation alone, so that
// no reading can be asked once more. // I26
func (r Run) IsolatesOnConfirmation() bool { return r.Proof == ProofHuman && confirmationActive(r) }

// holdFalseOff holds a run whose host turned out to run: a BMC has lied, or a confirmation was
// wrong, which freezes no BMC. // I5
func holdFalseOff(r Run, note string, now time.Time) (Run, Action, time.Duration) {
	if r.Proof == ProofHuman {
		return stop(r, reason.ConfirmedOffContradicted, note, now)
	}
	return stop(r, reason.FalseOff, note, now)
}
