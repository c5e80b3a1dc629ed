package remediate

import (
	"cmp"
	"maps"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// 4 AwaitNode. Goal: the host booted and registered: new UID, new boot ID, same
// system UUID. Mere existence is not enough. // I6
func awaitNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	n, t := s.Node, r.Target
	registered := registeredSinceIsolation(r, n)
	switch {
	case registered && !isTargetMachine(t, n):
		return stop(r, reason.TargetChanged, targetReplaced(r, s), now)
	case registered && otherThanReported(t, n):
		return stop(r, reason.IdentityMismatch, "the Node registered with the systemUUID "+n.SystemUUID+", but the BMC reported "+t.ReportedUUID+
			": find out which machine the BMC belongs to", now)
	case registered && n.BootID != t.BootID:
		r.NewNodeUID = n.UID
		return enter(r, RestoreNode, "", now)
	case registeredWithoutReboot(r, n):
		return holdFalseOff(r, neverOffNote, now)
	case s.Power.State == bmc.Off:
		return handleOffAgain(r, s, now)
	case !timeExpired(s, now, r.Deadline()), s.API != APIReachable, s.NodesUnseen:
		return r, Nothing, poll
	case s.RenamedTo != "":
		return holdRenamed(r, s, now)
	}
	return nextAttempt(r, s, "the Node did not register in time", now)
}

// 5 RestoreNode. Goal: every saved label, annotation and taint, and the cordon, was read back on the
// new Node, and the Node is Ready. // I21
func restoreNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	restored := s.Restored == Yes && !s.Node.OutOfService
	requested := s.Machine.Requested && s.Machine.UID == r.Target.MachineUID
	if s.Node.Exists == No || s.Node.Exists == Yes && (s.Node.UID != r.NewNodeUID || !isTargetMachine(r.Target, s.Node)) {
		return enter(r, AwaitNode, "the new Node went away, or is another machine's", now)
	}
	r = recordRestored(r, s)
	ready := s.Node.Ready == Yes && !readyMayBeOld(r, s, now)
	switch {
	case restored && s.Node.Ready == Yes && !ready:
		return r, Nothing, poll
	case restored && ready && timeExpired(s, now, r.Deadline()): // a working host is never cycled because of an annotation
		return finish(r, Done, reason.RequestNotCleared, "the remediation request could not be taken off the Machine", now)
	case restored && requested: // otherwise the health check in the cluster counts the Machine unhealthy for ever
		return command(r, ClearRequest, resendWrite, now)
	case restored && ready && (s.Machine.Exists != CannotTell || r.Target.Machine == ""):
		return finish(r, Done, "", "", now)
	case s.Power.State == bmc.Off:
		return handleOffAgain(r, s, now)
	case !restored && s.API == APIReachable && timeExpired(s, now, r.StepStarted.Add(r.Limits.RestoreTimeout)):
		return stop(r, reason.RestoreFailed, cmp.Or(s.RestoreError, "labels, annotations or taints could not be read back"), now)
	case timeExpired(s, now, r.Deadline()) && restored:
		return nextAttempt(r, s, "the Node was not Ready in time", now)
	case s.Restored == No, s.Restored == Yes && s.Node.OutOfService:
		return command(r, RestoreTargetNode, resendWrite, now)
	}
	return r, Nothing, poll
}

// handleOffAgain continues a run whose host was switched off again: by its owner, or as when an Off takes
// effect late.
func handleOffAgain(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	if s.OwnerWantsOff {
		return waitForOwner(r, now)
	}
	return enter(r, PowerOn, "the host reads Off again", now)
}

// readyMayBeOld says whether a Node may be Ready only because nobody has noticed yet that its host is off: the
// host reads Off, and somebody may have switched it off just now, as our power lock does that is released late while
// the API does not answer. A Node that stays Ready beside that has a BMC that lies. // I20
func readyMayBeOld(r Run, s Observation, now time.Time) bool {
	return s.Power.State == bmc.Off && !timeExpired(s, now, times.Later(r.StepStarted, s.Proof.Since()).Add(readyOutlives))
}

// maxRestored is how many keys a record holds, so that it stays small. A Node with more keys than that
// is restored whole, and the rest of them may be written again.
const maxRestored = 1000

// recordRestored notes the saved keys that were read back on the new Node. From then on each is its
// owner's, who may change it or take it off at once. // I21
func recordRestored(r Run, s Observation) Run {
	if s.Node.Exists != Yes || len(s.ReadBack) == 0 {
		return r
	}
	known := map[string]string{} // the caller's record must not change
	maps.Copy(known, r.Restored)
	for _, key := range s.ReadBack {
		if _, is := known[key]; is || len(known) < maxRestored {
			known[key] = r.NewNodeUID
		}
	}
	r.Restored = known
	return r
}

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
	booted := !deleteOnly && registeredSinceIsolation(r, s.Node) && isTargetMachine(r.Target, s.Node) && s.Node.BootID != r.Target.BootID && !s.Node.Deleting
	nodeIsBack := booted && s.Node.Ready == Yes
	comesUp := booted && r.Reason == reason.PowerOnFailed && r.NewNodeUID != s.Node.UID && s.Power.State != bmc.Off // step 5 has not had this Node yet // L1
	switch {
	case anyOnPending(r):
		return stop(r, reason.OutletContradicted, onPendingNote, now)
	case !deleteOnly && r.Target.BareMetalHost != "" && s.PowerLock == Yes: // the next owner must be able to switch it on
		return command(r, ReleasePowerLock, resendWrite, now)
	case !deleteOnly && r.Target.BareMetalHost != "" && s.PowerLock == CannotTell: // our power lock may be set: the run does not end
		return r, Nothing, poll
	case machineReplaced(r, s), r.Target.Machine != "" && m.Exists == Yes && (m.Deleting || m.Marked):
		return finish(r, Reprovisioned, r.Reason, r.Note, now)
	case nodeIsBack && !readyMayBeOld(r, s, now): // a working host is never erased
		r.OnSeen, r.Reason, r.Note = now, "", ""
		return enter(r, AwaitNode, "the Node is Ready after all", now)
	case comesUp: // nor one that has the time of step 4 yet: it was switched on, though nobody read that // I14
		r.OnSeen, r.Reason, r.Note = now, "", ""
		return enter(r, AwaitNode, "the host has booted after all", now)
	case !deleteOnly && registeredWithoutReboot(r, s.Node): // from step 3, if the BMC does not answer any more
		return holdFalseOff(r, neverOffNote, now)
	case found.ends():
		return found.apply(r, s, now)
	case nodeIsBack:
		return r, Nothing, poll
	case !deleteOnly && s.RenamedTo != "": // nor one that works under another name
		return holdRenamed(r, s, now)
	case deleteOnly && controlPlane:
		return finish(r, Aborted, reason.ControlPlane, "a control-plane Machine is not replaced here", now)
	case deleteOnly && m.Replaceable == No:
		return finish(r, Aborted, reason.NoController, m.Why, now)
	case deleteOnly && timeExpired(s, now, r.StepStarted.Add(r.Limits.APITimeout)):
		return finish(r, Aborted, reason.APIUnreachable, "the Machine could not be deleted in time", now)
	case !deleteOnly && (r.Target.Machine == "" || r.ControlPlane || r.Confirmed != nil || !r.Limits.Reprovision || m.Replaceable == No):
		return stop(r, cmp.Or(r.Reason, reason.AttemptsExhausted), cmp.Or(m.Why, r.Note, "reprovisioning is not allowed here"), now)
	case found.effect != proceed, !replaceable, m.Exists != Yes, s.Withdrawn != No, !deleteOnly && s.NodesUnseen, now.Sub(s.At) > freshFor,
		s.Contested != No, s.Node.Exists == CannotTell, // it may be Ready // I14, I22
		deleteOnly && (s.Justified != Yes || noQuorum(r, s)):
		return r, Nothing, poll
	}
	return command(r, DeleteTargetMachine, resendWrite, now)
}
