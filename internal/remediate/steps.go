package remediate

import (
	"cmp"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// Next is the whole of power remediation. From the durable record, what one look found and
// the time, it says what the record becomes, the one action to do after that record is
// saved, and how long to wait before the next look. It is pure: asked twice, it gives the
// same answer.
//
// What concerns every step comes first: the clock, a person's orders, an outage of the API,
// the time of the whole run. Then the step answers with the first of these that applies:
//
//  1. Its goal is reached, or something contradicts what an earlier look or a person said.
//     Each step says which of the two goes first: step 1 believes no reading beside a renewed
//     Lease, step 2 accepts that the Node is gone whatever the Lease says.
//  2. An interlock forbids to go on; see interlocks.go.
//  3. Its time is over, or its power level has failed.
//  4. Something that its command needs is not known: it waits.
//  5. None of these: its command, at most once per interval.
func Next(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	if r.Step.Ended() {
		return r, Nothing, 0
	}
	r.Steps = slices.Clone(r.Steps) // the caller's record must not change
	s = withoutOtherLevels(r, s)
	r = alignClock(r, s, now)
	r = recordLeaseBaseline(takeOrders(recordContradiction(r, s, now), now), s, now)
	switch {
	case s.API == APIReachable && !r.APILost.IsZero():
		r = resumeAfterOutage(r, now)
	case s.API == APIReachable:
	case r.APILost.IsZero():
		r.APILost = now
	}
	late := timeExpired(s, now, r.Started.Add(r.Limits.RunTimeout)) && r.Strategy != DeleteMachine // that has a time of its own
	// Step 3 has its own deadline: no host is left off because its run is late.
	comingOn := r.Step == PowerOn && (s.Power.State != bmc.On || s.Power.Partial || r.Level > 0)
	if late && !comingOn && r.Abandon == "" && r.Step != Held {
		return runTimedOut(r, now)
	}
	switch r.Step {
	case PowerOff:
		return powerOff(r, s, now)
	case DeleteNode:
		return deleteNode(r, s, now)
	case PowerOn:
		return powerOn(r, s, now)
	case AwaitNode:
		return awaitNode(r, s, now)
	case RestoreNode:
		return restoreNode(r, s, now)
	case Reprovision:
		return reprovision(r, s, now)
	}
	return heldRun(r, s, now)
}

// 1 PowerOff. Goal: Off, proven by two spaced reads of the identified BMC, and no renewal of the
// Lease since. Nothing is touched until fresh reads justify it.
func powerOff(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	switch why := confirmationContradicted(r, s); {
	case leaseAdvanced(r, s) && s.Power.State != bmc.On: // also beside a manual confirmation // I5
		return stopAsHeld(r, reasonFalseOff, "the Node's Lease was renewed although the BMC says Off", now)
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
	if r.OffLease == nil && s.Power.State == bmc.Off && s.Lease.Known {
		r.OffLease = s.Lease.seenAt(now)
	} else if s.Power.State == bmc.On {
		r.OffLease = nil
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
		return giveUpOnLevel(r, s, reasonOutletContradicted, miswiredNote(r, s), now)
	case accountRefused(s):
		return giveUpOnLevel(r, s, powerReason(s, ""), "the BMC refuses the account", now) // retrying locks it
	case levelUnusable(s) && hasNextLevel(r):
		return nextLevel(r, s, "it does not support what is needed", now)
	case timeExpired(s, now, r.Deadline()) && s.API != APIReachable && offProven(r, s, now):
		return giveUpIsolation(r, s, now) // only the Lease is not known to stand still
	case timeExpired(s, now, r.Deadline()):
		reason, note := offFailed(r, s)
		return giveUpOnLevel(r, s, reason, note, now)
	case noEffect.ends():
		return noEffect.apply(r, s, now)
	case noEffectYet(r, s) && preconditionsUnknown(r, s, now), s.Identity != Yes: // the power lock, too, is a power command // I8
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
	at, again := stageUntouched, r.Attempt > 1 // a later attempt is justified by the missed deadline of the one before
	if again {
		at = stageLaterAttempt
	}
	found := interlockAt(at, r, s)
	switch {
	case again && s.Node.Ready == Yes:
		return acceptReadyNode(r, s, now)
	case again && s.RenamedTo != "":
		return holdRenamed(r, s, now)
	case found.ends():
		return found.apply(r, s, now)
	case now.Before(r.NotBefore):
		return r, Nothing, min(idlePoll, r.NotBefore.Sub(now))
	case levelUnusable(s) && hasNextLevel(r):
		return nextLevel(r, s, "not usable ("+string(s.PowerError)+")", now)
	case timeExpired(s, now, later(r.Deadline(), r.NotBefore.Add(r.Limits.OffDeadline))):
		return giveUpOnStart(r, s, now)
	case found.effect == wait, s.API != APIReachable, s.Contested != No, s.Identity != Yes,
		s.Node.Exists == CannotTell, s.Justified != Yes && !again && !confirmationActive(r), noQuorum(r, s), now.Sub(s.At) > freshFor,
		offInhibited(r, s), again && s.NodesUnseen, s.Power.Unwitnessed: // perhaps it is off already
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

// 2 DeleteNode. Goal: the Node with the UID that the run was decided on is gone (or carries the
// out-of-service taint). This is the only step that cannot be undone. // I1, I2, I21
func deleteNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	tainted := r.Isolation == IsolateTaint && s.Node.Exists == Yes && s.Node.OutOfService
	at := stageIsolating
	if r.IsolatesOnConfirmation() {
		at = stageIsolatingConfirmed
	}
	found := interlockAt(at, r, s)
	switch {
	case s.Node.Exists == Yes && s.Node.UID != r.Target.NodeUID && !s.Node.unregistered():
		r.Isolated = now
		return holdFalseOff(r, "a Node of this name registered while its host was believed off", now)
	case s.Node.Exists == No, tainted, s.Node.Exists == Yes && s.Node.UID != r.Target.NodeUID:
		return nodeIsolated(r, now)
	case r.Proof != ProofHuman && leaseAdvanced(r, s) && s.Power.State != bmc.On: // also beside a manual confirmation // I5
		return holdFalseOff(r, "the Node's Lease was renewed although the BMC says Off", now)
	case confirmationContradicted(r, s) != "":
		return holdContradicted(r, confirmationContradicted(r, s), now)
	case leaseAdvanced(r, s):
		return holdFalseOff(r, "the Node's Lease was renewed although the BMC says Off", now)
	case s.Power.State == bmc.On:
		r.OffLease = nil
		return enter(r, PowerOff, "the host reads On again", now)
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
	case !r.IsolatesOnConfirmation() && !offProven(r, s, now) || !powerLockHeld(r, s):
		return r, Nothing, untilRead(s, now)
	}
	r.Target.BootID = cmp.Or(s.Node.BootID, r.Target.BootID) // it may have rebooted since the decision; step 4 wants a later boot // I6
	return command(r, IsolateNode, poll, now)
}

// nodeIsolated passes the point of no return, or stops there if that was ordered.
func nodeIsolated(r Run, now time.Time) (Run, Action, time.Duration) {
	r.Isolated, r.LeaveOff = now, true
	switch {
	case confirmationActive(r): // the person may be working inside the host
		return stopAsHeld(r, reasonConfirmedOff, orderNote("confirmed off", *r.Confirmed)+"; unfence brings it back, or a new boot", now)
	case r.OffOnly:
		return stopAsHeld(r, reasonOperatorOff, "fenced with --off-only; unfence brings it back", now)
	case r.FoundOff && !r.Limits.PowerOnFoundOff:
		return stopAsHeld(r, reasonFoundOff, "the host was off before fenced came; unfence brings it back", now)
	}
	r.LeaveOff = false
	return enter(r, PowerOn, "", now)
}

// giveUpIsolation ends step 2 when its time is over: back to On. If a finalizer keeps a Node that
// is being deleted, the run is Held with the host off, because a kubelet that starts now would
// never register again.
func giveUpIsolation(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	switch {
	case s.API == APIForbidden:
		return abandon(r, reasonAPIForbidden, "the API server forbids what step 2 needs", Held, now)
	case s.API != APIReachable:
		return abandon(r, reasonAPIUnreachable, "the API server did not answer", Aborted, now)
	case s.Node.Deleting:
		r.LeaveOff = true
		return stopAsHeld(r, reasonNodeFinalizer, "a finalizer keeps the deleted Node", now)
	case s.Node.Ready == Yes:
		return abandon(r, reasonNodeStillReady, "the control plane still reports the Node Ready", Held, now)
	}
	return abandon(r, reasonIsolationFailed, "the Node could not be isolated; last power read: "+powerReadText(s), Held, now)
}

// 3 PowerOn. Goal: the power lock is released and the host reads On, at the level that switched it
// off and at each level below. An abandoned cycle comes here too. It ends when the Node is known not
// to have been deleted after all.
func powerOn(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	r = detectLateIsolation(r, s, now)
	bmh, commanded := r.Target.BareMetalHost != "", r.Intent.Action == SendOn || r.Intent.Action == ReleasePowerLock
	believedOff := r.Abandon == "" && !commanded && r.OnSeen.IsZero() && s.Power.State != bmc.On && !belowOffLevel(r)
	on, note := levelOn(r, s, now)
	stays := on && offSettled(r, s, now)
	late := timeExpired(s, now, r.Deadline())
	switch {
	case stays && r.Level > 0:
		return previousLevel(r, s, note, now)
	case stays && (!bmh || s.PowerLock == No):
		return hostPoweredOn(r, s, note, now)
	case believedOff && (leaseAdvanced(r, s) || r.Isolation == IsolateDelete && s.Node.Exists == Yes && !s.Node.unregistered()):
		return holdFalseOff(r, "the Node was active again while its host was believed off", now)
	case late && !on && daemonWasAway(r, s, now):
		anew, _, _ := enter(r, PowerOn, daemonAwayNote, now)
		anew.Level, anew.Intent = r.Level, r.Intent // what was sent before still counts
		return anew, Nothing, poll
	case late && !on && anyOnPending(r):
		return stopAsHeld(r, reasonOutletContradicted, onPendingNote+"; last read: "+powerReadText(s), now)
	case late && !on && r.Abandon != "":
		return stopAsHeld(r, reasonPowerOnFailed, "abandoned ("+r.Abandon+"), and the host does not read On; last read: "+powerReadText(s), now)
	case late && r.AbandonTo == Held && s.API == APIForbidden: // fenced cannot release the power lock, a person can
		return stopAsHeld(r, r.Reason, r.Note, now)
	case late && !on:
		r.Reason, r.Note = reasonPowerOnFailed, "the host was not read On in time; last read: "+powerReadText(s)
		return enter(r, Reprovision, r.Note, now)
	case now.Sub(r.StepStarted) < pauseBeforeOn && !on:
		return r, Nothing, poll
	case r.Abandon == "" && s.PodsGone != Yes && now.Sub(r.Isolated) < r.Limits.PodsGoneTimeout: // I7
		return r, Nothing, poll
	case bmh && s.PowerLock == Yes:
		return command(r, ReleasePowerLock, resendWrite, now)
	case on || s.Identity == No: // waits for the API or a late Off; never commands another machine's BMC
		return r, Nothing, poll
	case belowOffLevel(r) && levelUnreachable(s) && !onPending(r): // its BMC boots, or lost its power with the host
		return r, Nothing, poll
	}
	return command(r, SendOn, resendPower, now)
}

func hostPoweredOn(r Run, s Observation, note string, now time.Time) (Run, Action, time.Duration) {
	switch {
	case r.Abandon != "" && s.Node.Deleting && timeExpired(s, now, r.Started.Add(r.Limits.RunTimeout)):
		return stopAsHeld(r, reasonNodeFinalizer, "a finalizer keeps the deleted Node; its host is On", now)
	case r.Abandon != "" && (s.Node.Exists == CannotTell || s.Node.Exists == Yes && s.Node.Deleting):
		return r, Nothing, poll
	case r.Abandon != "" && levelUnreachable(s) && belowOffLevel(r): // nothing else would show that the host stayed off // I20
		return stopAsHeld(r, reasonPowerOnFailed, "abandoned ("+r.Abandon+"), and "+note, now)
	case r.Abandon != "" && r.AbandonTo == Held:
		return stopAsHeld(r, r.Reason, r.Note, now)
	case r.Abandon != "":
		return finish(r, Aborted, r.Reason, r.Note, now)
	}
	r.OnSeen = now
	return enter(r, AwaitNode, note, now)
}

// 4 AwaitNode. Goal: the host booted and registered: new UID, new boot ID, same
// system UUID. Mere existence is not enough. // I6
func awaitNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	n, t := s.Node, r.Target
	registered := registeredSinceIsolation(r, n)
	switch {
	case registered && !isTargetMachine(r, n):
		return stopAsHeld(r, reasonFalseOff, "the Node registered from another machine: systemUUID "+n.SystemUUID, now)
	case registered && n.BootID != t.BootID:
		r.NewNodeUID = n.UID
		return enter(r, RestoreNode, "", now)
	case registered && (r.Isolation == IsolateDelete || n.Ready == Yes):
		return holdFalseOff(r, "the Node registered again without a reboot: its host was never off", now)
	case s.Power.State == bmc.Off:
		return enter(r, PowerOn, "the host reads Off again", now)
	case !timeExpired(s, now, r.Deadline()), s.API != APIReachable, s.NodesUnseen:
		return r, Nothing, poll
	case s.RenamedTo != "":
		return holdRenamed(r, s, now)
	}
	return nextAttempt(r, "the Node did not register in time", now)
}

// 5 RestoreNode. Goal: every saved label, annotation and taint, and the cordon, is on the new Node,
// read back, and the Node is Ready. // I21
func restoreNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	restored := s.Restored == Yes && !s.Node.OutOfService
	requested := s.Machine.Requested && s.Machine.UID == r.Target.MachineUID
	switch {
	case s.Node.Exists == No, s.Node.Exists == Yes && (s.Node.UID != r.NewNodeUID || !isTargetMachine(r, s.Node)):
		return enter(r, AwaitNode, "the new Node went away, or is another machine's", now)
	case restored && s.Node.Ready == Yes && timeExpired(s, now, r.Deadline()): // a working host is never cycled because of an annotation
		return finish(r, Done, reasonRequestNotCleared, "the remediation request could not be taken off the Machine", now)
	case restored && requested: // otherwise the health check in the cluster counts the Machine unhealthy for ever
		return command(r, ClearRequest, resendWrite, now)
	case restored && s.Node.Ready == Yes && (s.Machine.Exists != CannotTell || r.Target.Machine == ""):
		return finish(r, Done, "", "", now)
	case s.Power.State == bmc.Off:
		return enter(r, PowerOn, "the host reads Off again", now)
	case !restored && s.API == APIReachable && timeExpired(s, now, r.StepStarted.Add(r.Limits.RestoreTimeout)):
		return stopAsHeld(r, reasonRestoreFailed, cmp.Or(s.RestoreError, "labels, annotations or taints could not be read back"), now)
	case timeExpired(s, now, r.Deadline()) && restored:
		return nextAttempt(r, "the Node was not Ready in time", now)
	case s.Restored == No, s.Restored == Yes && s.Node.OutOfService:
		return command(r, RestoreTargetNode, resendWrite, now)
	}
	return r, Nothing, poll
}

// 6 Reprovision. Goal: the Machine is deleted, or handed over to its owner by condition, so that it
// is replaced. This is the fallback after power cycles, and all of the DeleteMachine strategy. // I14
func reprovision(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	m, deleteOnly := s.Machine, r.Strategy == DeleteMachine
	controlPlane := r.ControlPlane && !(deleteOnly && r.Limits.ReplaceControlPlane)
	replaceable := m.Replaceable == Yes && !controlPlane && (deleteOnly || r.Limits.Reprovision)
	at := stageReprovisioning
	if deleteOnly {
		at = stageDeletingMachine
	}
	found := interlockAt(at, r, s)
	nodeIsBack := !deleteOnly && registeredSinceIsolation(r, s.Node) && s.Node.BootID != r.Target.BootID && s.Node.Ready == Yes && !s.Node.Deleting
	switch {
	case anyOnPending(r):
		return stopAsHeld(r, reasonOutletContradicted, onPendingNote, now)
	case !deleteOnly && r.Target.BareMetalHost != "" && s.PowerLock == Yes: // the next owner must be able to switch it on
		return command(r, ReleasePowerLock, resendWrite, now)
	case !deleteOnly && r.Target.BareMetalHost != "" && s.PowerLock == CannotTell: // our power lock may be set: the run does not end
		return r, Nothing, poll
	case r.Target.Machine != "" && (m.Exists == No || m.Exists == Yes && (m.Deleting || m.Marked || m.UID != r.Target.MachineUID)):
		return finish(r, Reprovisioned, r.Reason, r.Note, now)
	case nodeIsBack: // a working host is never erased
		r.OnSeen, r.Reason, r.Note = now, "", ""
		return enter(r, AwaitNode, "the Node is Ready after all", now)
	case found.ends():
		return found.apply(r, s, now)
	case !deleteOnly && s.RenamedTo != "": // nor one that works under another name
		return holdRenamed(r, s, now)
	case deleteOnly && controlPlane:
		return finish(r, Aborted, reasonControlPlane, "a control-plane Machine is not replaced here", now)
	case deleteOnly && m.Replaceable == No:
		return finish(r, Aborted, reasonNoController, m.Why, now)
	case deleteOnly && timeExpired(s, now, r.StepStarted.Add(r.Limits.APITimeout)):
		return finish(r, Aborted, reasonAPIUnreachable, "the Machine could not be deleted in time", now)
	case !deleteOnly && (r.Target.Machine == "" || r.ControlPlane || r.Confirmed != nil || !r.Limits.Reprovision || m.Replaceable == No):
		return stopAsHeld(r, cmp.Or(r.Reason, reasonAttemptsExhausted), cmp.Or(m.Why, r.Note, "reprovisioning is not allowed here"), now)
	case found.effect == wait, !replaceable, m.Exists != Yes, !deleteOnly && s.NodesUnseen, now.Sub(s.At) > freshFor,
		deleteOnly && (s.Justified != Yes || s.Contested != No || noQuorum(r, s)):
		return r, Nothing, poll
	}
	return command(r, DeleteTargetMachine, resendWrite, now)
}
