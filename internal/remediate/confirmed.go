package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

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

// confirmationContradicted is what contradicts an active confirmation; "" when nothing does.
func confirmationContradicted(r Run, s Observation) string {
	switch w := r.Confirmation; {
	case !confirmationActive(r):
	case s.Power.State == bmc.On:
		return levelName(r, s) + " reads " + powerReadText(s)
	case s.LowerLevelOn != "":
		return s.LowerLevelOn
	case !w.Since.IsZero() && s.Lease.Known && s.Lease.ResourceVersion != "" && s.Lease.ResourceVersion != w.Lease.ResourceVersion:
		return "the Node's Lease was renewed since"
	case s.Node.Ready == Yes:
		return "the Node is Ready"
	}
	return ""
}

// ContradictsConfirmation is what in a look contradicts an active confirmation; "" when nothing
// does. // I26
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
