package remediate

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// 2 DeleteNode. Goal: the Node with the UID that the run was decided on is gone (or carries the
// out-of-service taint). This is the only step that cannot be undone. // I1, I2, I21
func deleteNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	at := stageIsolating
	if r.IsolatesOnConfirmation() {
		at = stageIsolatingConfirmed
	}
	found := interlockAt(at, r, s)
	switch {
	case s.Node.registered() && s.Node.UID != r.Target.NodeUID:
		return registeredInIsolation(r, s, now)
	case isTainted(r, s) && !isolationBegan(r, s): // its boot ends here all the same // I6
		r.Target.BootID = cmp.Or(s.Node.BootID, r.Target.BootID)
		return nodeIsolated(r, s, now)
	// The Node with the target's UID is gone, whoever deleted it. A Node of another UID gets here only
	// if no kubelet has registered it yet.
	case s.Node.Exists == No, isTainted(r, s), s.Node.Exists == Yes && s.Node.UID != r.Target.NodeUID:
		return nodeIsolated(r, s, now)
	case r.Proof != ProofHuman && falseOffReason(r, s) != "": // also beside a manual confirmation // I5
		return stop(r, reason.FalseOff, falseOffReason(r, s), now)
	case confirmationContradicted(r, s) != "":
		return holdContradicted(r, confirmationContradicted(r, s), now)
	case r.Proof == ProofHuman && leaseAdvanced(r, s):
		return holdFalseOff(r, "the Node's Lease was renewed", now)
	case s.Power.State == bmc.On:
		r.OffLease = nil
		return enter(r, PowerOff, "the host reads On again", now)
	case leaseAdvanced(r, s) && !found.ends():
		r.OffLease = nil
		return enter(r, PowerOff, "the Node's Lease was renewed since: Off must be proven again", now)
	case found.ends():
		return found.apply(r, s, now)
	case timeExpired(s, now, r.Deadline()):
		return giveUpIsolation(r, s, now)
	case s.Node.Deleting, s.Node.Ready == Yes: // a finalizer, or Ready has not timed out yet: wait
		return r, Nothing, poll
	case s.API != APIReachable, s.Node.Exists != Yes, s.Contested != No, !s.Lease.Known, r.IsolatesOnConfirmation() && noQuorum(r, s):
		return r, Nothing, poll
	case !r.IsolatesOnConfirmation() && !s.OffAccepted, s.PowerLock == No && r.Target.BareMetalHost != "":
		if r.Proof == ProofHuman {
			r.Proof, r.OffLease = "", nil // no BMC has read Off
		}
		return enter(r, PowerOff, "Off must be sent and proven again: fenced was restarted, or the power lock was lost", now)
	case s.Backup != Backup{UID: s.Node.UID, ResourceVersion: s.Node.ResourceVersion}:
		return command(r, BackupNode, poll, now)
	case !r.IsolatesOnConfirmation() && !offProven(r, s, now) || !powerLockHeld(r, s): // I1
		return r, Nothing, untilRead(s, now)
	}
	r.Target.BootID = cmp.Or(s.Node.BootID, r.Target.BootID) // it may have rebooted since the decision; step 4 wants a later boot // I6
	r.IsolatedAsked = r.Request != nil && s.Withdrawn == No
	return command(r, IsolateNode, poll, now)
}

// registeredInIsolation continues step 2 when a kubelet has registered another Node of the name. If
// fenced had saved the target's Node, it may have isolated that Node without an answer or without a
// record: then the host was switched on since. Otherwise somebody else has replaced the Node,
// perhaps right before Off, and nothing was isolated.
func registeredInIsolation(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	const note = "another Node of this name has registered"
	switch {
	case r.Proof == ProofHuman && !isOtherMachine(r.Target, s.Node):
		r.Isolated = now
		return holdFalseOff(r, note, now)
	case falseOffReason(r, s) != "":
		r.Isolated = now
		return stop(r, reason.FalseOff, falseOffReason(r, s), now)
	case isolationBegan(r, s):
		return nodeIsolated(r, s, now)
	}
	return abandon(r, reason.TargetChanged, cmp.Or(targetReplaced(r, s), note), Aborted, now)
}

// isTainted says whether the Node is isolated by our taint. One that a lost run has left counts only when Ready
// has timed out: else step 4 would take Ready for a sign of life. // I5
func isTainted(r Run, s Observation) bool {
	return r.Isolation == IsolateTaint && s.Node.Exists == Yes && s.Node.OutOfService && (isolationBegan(r, s) || s.Node.Ready != Yes)
}

// isolationBegan says whether this run may have sent the isolation of the Node that is its target:
// it has saved that Node before, or the store does not say whether it has. // I21
func isolationBegan(r Run, s Observation) bool {
	return r.Target.NodeUID != "" && (s.Backup.Unread || s.Backup.UID == r.Target.NodeUID)
}

// isolatedAfterAll says whether the Node that is there now replaced one whose isolation this run may have
// sent without an answer: it has another UID, or our taint.
func isolatedAfterAll(r Run, s Observation) bool {
	return s.Node.Exists == Yes && mayBeIsolated(r, s)
}

// mayBeIsolated says whether the isolation may have been done without an answer: the run may have sent it,
// and the Node is not seen as it was.
func mayBeIsolated(r Run, s Observation) bool {
	asItWas := s.Node.Exists == Yes && s.Node.UID == r.Target.NodeUID && !s.Node.OutOfService
	return isolationBegan(r, s) && !asItWas
}

// nodeIsolated passes the point of no return, or stops there if that was ordered.
func nodeIsolated(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	r.Isolated = now
	if r.IsolatesOnConfirmation() && (s.Power.State == bmc.On || s.LowerLevelOn != "") { // perhaps read while the API server carried the isolation out // I26
		return holdContradicted(r, "the Node is isolated, and "+confirmationContradicted(r, s), now)
	}
	r.LeaveOff = true
	switch {
	case confirmationActive(r): // the person may be working inside the host
		return stop(r, reason.ConfirmedOff, orderNote("confirmed off", *r.Confirmed)+"; unfence brings it back, or a new boot", now)
	case r.OffOnly:
		return stop(r, reason.OperatorOff, "fenced with --off-only; unfence brings it back", now)
	case r.FoundOff && !r.Limits.PowerOnFoundOff:
		return stop(r, reason.FoundOff, "the host was off before fenced came; unfence brings it back", now)
	}
	r.LeaveOff = false
	return enter(r, PowerOn, "", now)
}

func apiLostNote(s Observation) string {
	if s.OtherCluster {
		return "the kubeconfig leads to another cluster than the one in which the run began"
	}
	return "the API server did not answer"
}

// giveUpIsolation ends step 2 when its time is over: back to On. If a finalizer keeps a Node that
// is being deleted, the run is Held with the host off, because a kubelet that starts now would
// never register again.
func giveUpIsolation(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	switch {
	case s.API == APIForbidden:
		return abandon(r, reason.APIForbidden, "the API server forbids what step 2 needs", Held, now)
	case s.API != APIReachable:
		return abandon(r, reason.APIUnreachable, apiLostNote(s), Aborted, now)
	case s.Node.Deleting:
		r.LeaveOff = true
		return stop(r, reason.NodeFinalizer, "a finalizer keeps the deleted Node", now)
	case s.Node.Ready == Yes:
		return abandon(r, reason.NodeStillReady, "the control plane still reports the Node Ready", Held, now)
	}
	return abandon(r, reason.IsolationFailed, "the Node could not be isolated; last power read: "+powerReadText(s), Held, now)
}

// OutlivesRequest says whether a run goes on with the retries of its record although its request was deleted.
// NodeHealthCheck deletes the requests of a Node that is gone, so a deletion after fenced's own isolation
// says nothing: nobody can see that the Node is still needed. That is over when the Node is back, or when the
// retries are used up; then the run needs a request as before. No Machine is replaced for a request that
// is gone. // I4, I14
func (r Run) OutlivesRequest(n Node) Answer {
	switch {
	case !r.IsolatedAsked, r.Step == Reprovision, r.Reason == reason.AttemptsExhausted:
		return No
	case n.Exists == CannotTell:
		return CannotTell
	}
	return AnswerOf(!n.registered())
}
