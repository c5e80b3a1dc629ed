package remediate

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

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
	nodeIsBack := !deleteOnly && registeredSinceIsolation(r, s.Node) && isTargetMachine(r.Target, s.Node) && s.Node.BootID != r.Target.BootID && s.Node.Ready == Yes && !s.Node.Deleting
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
		deleteOnly && (s.Justified != Yes || s.Contested != No || noQuorum(r, s)):
		return r, Nothing, poll
	}
	return command(r, DeleteTargetMachine, resendWrite, now)
}
