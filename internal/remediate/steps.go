package remediate

import (
	"cmp"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// Next is the whole of power remediation: from the durable record, what one
// look found and the time, it says what the record becomes, the one thing to
// do after that record is saved, and how long to wait before the next look.
//
// It is pure, and asking twice gives the same answer. Each step answers in
// this order: is my goal already visible? is something untrue now that an
// earlier step proved (then go back)? is my time over? else: my command, at
// most once per interval.
func Next(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	if r.Step.Ended() {
		return r, Nothing, 0
	}
	r.Steps = slices.Clone(r.Steps) // the caller's record is not ours to change
	s = ofLevel(r, s)
	r = alignClock(r, s, now)
	r = recordLeaseBaseline(takeOrders(recordContradiction(r, s, now), now), s, now)
	switch {
	case s.API == APIReachable && !r.APILost.IsZero():
		r = resumeAfterOutage(r, now)
	case s.API == APIReachable:
	case r.APILost.IsZero():
		r.APILost = now
	}
	late := timeExpired(s, now, r.Started.Add(r.Limits.RunTimeout)) && r.Strategy != DeleteMachine // step 6 alone has a time of its own
	// Coming on has its own deadline: no host is left off for being late.
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

// 1 PowerOff. Goal: Off, proven by two spaced reads of the identified BMC, and
// no heartbeat since. Nothing was touched until the fresh reads justify it.
func powerOff(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	switch why := confirmationContradicted(r, s); {
	case leaseAdvanced(r, s) && s.Power.State != bmc.On: // also beside a person's word // I5
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
		return nextLevel(r, s, "it cannot do what is needed", now)
	case timeExpired(s, now, r.Deadline()) && s.API != APIReachable && offProven(r, s, now):
		return giveUpIsolation(r, s, now) // only the heartbeat is missing
	case timeExpired(s, now, r.Deadline()):
		reason, note := offFailed(r, s)
		return giveUpOnLevel(r, s, reason, note, now)
	case noEffect.ends():
		return noEffect.apply(r, s, now)
	case noEffectYet(r, s) && preconditionsUnknown(r, s, now), s.Identity != Yes: // the hold, too, is a power command // I8
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

// preflight is the part of step 1 in which nothing has been touched, or not since a
// person began it over: any doubt drops the run. // I4, I8, I22
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
		offInhibited(r, s), again && s.NodesUnseen, s.Power.Unwitnessed: // found off, perhaps
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

// 2 DeleteNode. Goal: the Node with the UID we decided on is gone (or carries
// the out-of-service taint). The only step that cannot be undone. // I1, I2, I21
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
	case r.Proof != ProofHuman && leaseAdvanced(r, s) && s.Power.State != bmc.On: // also beside a person's word // I5
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
	case s.Node.Deleting, s.Node.Ready == Yes: // a finalizer, or a heartbeat not yet given up: wait
		return r, Nothing, poll
	case s.API != APIReachable, s.Node.Exists != Yes, s.Contested != No, !s.Lease.Known, r.IsolatesOnConfirmation() && noQuorum(r, s):
		return r, Nothing, poll
	case !r.IsolatesOnConfirmation() && !s.OffAccepted, s.PowerLock == No && r.Target.BareMetalHost != "":
		if r.Proof == ProofHuman {
			r.Proof, r.OffLease = "", nil // no BMC has read Off
		}
		return enter(r, PowerOff, "Off must be sent and proven again: a restart or a lost hold", now)
	case s.Backup != Backup{UID: s.Node.UID, ResourceVersion: s.Node.ResourceVersion}:
		return command(r, BackupNode, poll, now)
	case !r.IsolatesOnConfirmation() && !offProven(r, s, now) || !powerLockHeld(r, s):
		return r, Nothing, untilRead(s, now)
	}
	r.Target.BootID = cmp.Or(s.Node.BootID, r.Target.BootID) // it may have rebooted since the decision; step 4 wants a later boot // I6
	return command(r, IsolateNode, poll, now)
}

// nodeIsolated passes the point of no return, or stops there when that was asked.
func nodeIsolated(r Run, now time.Time) (Run, Action, time.Duration) {
	r.Isolated, r.LeaveOff = now, true
	switch {
	case confirmationActive(r): // who said so may be at work inside the host
		return stopAsHeld(r, reasonConfirmedOff, saidBy("confirmed off", *r.Confirmed)+"; unfence brings it back, or a new boot", now)
	case r.OffOnly:
		return stopAsHeld(r, reasonOperatorOff, "fenced with --off-only; unfence brings it back", now)
	case r.FoundOff && !r.Limits.PowerOnFoundOff:
		return stopAsHeld(r, reasonFoundOff, "the host was off before fenced came; unfence brings it back", now)
	}
	r.LeaveOff = false
	return enter(r, PowerOn, "", now)
}

// giveUpIsolation ends step 2 when its time is over: back to On, or, when the Node
// is being deleted but a finalizer keeps it, Held with the host off, because a
// kubelet started now would never register again.
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
		return abandon(r, reasonNodeStillReady, "the control plane still calls the Node Ready", Held, now)
	}
	return abandon(r, reasonIsolationFailed, "the Node could not be isolated; last power read: "+readText(s), Held, now)
}

// 3 PowerOn. Goal: hold released and the host read On, at the level that cut it
// off and at each below it. An abandoned cycle comes here too, and ends when the
// Node is known not to have been deleted after all.
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
		return holdFalseOff(r, "the Node came back to life while its host was believed off", now)
	case late && !on && unattended(r, s, now):
		anew, _, _ := enter(r, PowerOn, unattendedNote, now)
		anew.Level, anew.Intent = r.Level, r.Intent // what was sent was sent
		return anew, Nothing, poll
	case late && !on && anyOnPending(r):
		return stopAsHeld(r, reasonOutletContradicted, onPendingNote+"; last read: "+readText(s), now)
	case late && !on && r.Abandon != "":
		return stopAsHeld(r, reasonPowerOnFailed, "given up ("+r.Abandon+"), and the host does not read On; last read: "+readText(s), now)
	case late && r.AbandonTo == Held && s.API == APIForbidden: // the hold cannot be removed: a human can
		return stopAsHeld(r, r.Reason, r.Note, now)
	case late && !on:
		r.Reason, r.Note = reasonPowerOnFailed, "the host was not read On in time; last read: "+readText(s)
		return enter(r, Reprovision, r.Note, now)
	case now.Sub(r.StepStarted) < dwell && !on:
		return r, Nothing, poll
	case r.Abandon == "" && s.PodsGone != Yes && now.Sub(r.Isolated) < r.Limits.PodsGoneTimeout: // I7
		return r, Nothing, poll
	case bmh && s.PowerLock == Yes:
		return command(r, ReleasePowerLock, resendWrite, now)
	case on || s.Identity == No: // waiting for API or late Off; never command a stranger's BMC
		return r, Nothing, poll
	case belowOffLevel(r) && levelUnreachable(s) && !onPending(r): // its BMC boots, or died with its mains
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
	case r.Abandon != "" && levelUnreachable(s) && belowOffLevel(r): // nothing else would tell that the host stayed off // I20
		return stopAsHeld(r, reasonPowerOnFailed, "given up ("+r.Abandon+"), and "+note, now)
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
	case registered && !ofMachine(r, n):
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

// 5 RestoreNode. Goal: every saved label, annotation, taint and the cordon is
// on the new Node, read back, and the Node is Ready. // I21
func restoreNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	restored := s.Restored == Yes && !s.Node.OutOfService
	requested := s.Machine.Requested && s.Machine.UID == r.Target.MachineUID
	switch {
	case s.Node.Exists == No, s.Node.Exists == Yes && (s.Node.UID != r.NewNodeUID || !ofMachine(r, s.Node)):
		return enter(r, AwaitNode, "the new Node went away, or is another machine's", now)
	case restored && s.Node.Ready == Yes && timeExpired(s, now, r.Deadline()): // a host that works is never cycled for an annotation
		return finish(r, Done, reasonRequestNotCleared, "the remediation request could not be taken off the Machine", now)
	case restored && requested: // else the in-cluster judge counts it unhealthy for ever
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

// 6 Reprovision. Goal: the Machine is deleted, or handed over to its owner by
// condition, so that it is replaced. The fallback of a power cycle, and the whole
// of the DeleteMachine strategy. // I14
func reprovision(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	m, alone := s.Machine, r.Strategy == DeleteMachine
	controlPlane := r.ControlPlane && !(alone && r.Limits.ReplaceControlPlane)
	may := m.Replaceable == Yes && !controlPlane && (alone || r.Limits.Reprovision)
	at := stageReprovisioning
	if alone {
		at = stageDeletingMachine
	}
	found := interlockAt(at, r, s)
	back := !alone && registeredSinceIsolation(r, s.Node) && s.Node.BootID != r.Target.BootID && s.Node.Ready == Yes && !s.Node.Deleting
	switch {
	case anyOnPending(r):
		return stopAsHeld(r, reasonOutletContradicted, onPendingNote, now)
	case !alone && r.Target.BareMetalHost != "" && s.PowerLock == Yes: // the next owner must be able to switch it on
		return command(r, ReleasePowerLock, resendWrite, now)
	case !alone && r.Target.BareMetalHost != "" && s.PowerLock == CannotTell: // no end with our hold perhaps left behind
		return r, Nothing, poll
	case r.Target.Machine != "" && (m.Exists == No || m.Exists == Yes && (m.Deleting || m.Marked || m.UID != r.Target.MachineUID)):
		return finish(r, Reprovisioned, r.Reason, r.Note, now)
	case back: // never erase a host that works
		r.OnSeen, r.Reason, r.Note = now, "", ""
		return enter(r, AwaitNode, "the Node is Ready after all", now)
	case found.ends():
		return found.apply(r, s, now)
	case !alone && s.RenamedTo != "": // nor under another name
		return holdRenamed(r, s, now)
	case alone && controlPlane:
		return finish(r, Aborted, reasonControlPlane, "a control-plane Machine is not replaced here", now)
	case alone && m.Replaceable == No:
		return finish(r, Aborted, reasonNoController, m.Why, now)
	case alone && timeExpired(s, now, r.StepStarted.Add(r.Limits.APITimeout)):
		return finish(r, Aborted, reasonAPIUnreachable, "the Machine could not be deleted in time", now)
	case !alone && (r.Target.Machine == "" || r.ControlPlane || r.Confirmed != nil || !r.Limits.Reprovision || m.Replaceable == No):
		return stopAsHeld(r, cmp.Or(r.Reason, reasonAttemptsExhausted), cmp.Or(m.Why, r.Note, "reprovisioning is not allowed here"), now)
	case found.effect == wait, !may, m.Exists != Yes, !alone && s.NodesUnseen, now.Sub(s.At) > freshFor,
		alone && (s.Justified != Yes || s.Contested != No || noQuorum(r, s)):
		return r, Nothing, poll
	}
	return command(r, DeleteTargetMachine, resendWrite, now)
}
