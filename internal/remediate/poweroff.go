package remediate

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// 1 PowerOff. Goal: Off, proven by two spaced reads of the identified BMC, and no renewal of the
// Lease since. Nothing is touched until fresh reads justify it.
func powerOff(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	switch why := confirmationContradicted(r, s); {
	case falseOffReason(r, s) != "" && r.Intervened: // also beside a manual confirmation // I5
		return stop(r, reason.FalseOff, falseOffReason(r, s), now)
	case why != "":
		return holdContradicted(r, why, now)
	case confirmationActive(r) && levelUnreadable(r, s, now):
		return powerOffConfirmed(r, s, now)
	case !r.Intervened, r.Revalidate:
		return preflight(r, s, now)
	case r.Attempt > 1 && s.RenamedTo != "" && noEffectYet(r, s), nodeRecovered(r, s) && s.Power.State == bmc.On:
		return cancelOff(r, s, now)
	}
	return switchOff(r, s, now)
}

// preflight is step 1 before its first command, or its first one since a person had it begin
// again: any doubt drops the run. // I4, I8, I22
func preflight(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	at, again := stageUntouched, r.Attempt > 1 // a later attempt is justified by the missed deadline of the one before, while it is asked for
	if again {
		at = stageLaterAttempt
	}
	found := interlockAt(at, r, s)
	switch {
	case again && s.Node.Ready == Yes && targetReplaced(r, s) == "":
		return acceptReadyNode(r, s, now)
	case again && s.RenamedTo != "":
		return holdRenamed(r, s, now)
	case found.ends():
		return found.apply(r, s, now)
	case now.Before(r.NotBefore):
		return r, Nothing, min(idlePoll, r.NotBefore.Sub(now))
	case levelUnusable(s) && hasNextLevel(r):
		return nextLevel(r, s, "not usable ("+string(s.PowerError)+")", now)
	case timeExpired(s, now, times.Later(r.Deadline(), r.NotBefore.Add(r.Limits.OffDeadline))):
		return giveUpOnStart(r, s, now)
	case found.effect != proceed, s.API != APIReachable, s.Contested != No, s.Identity != Yes,
		s.Node.Exists == CannotTell, s.Justified != Yes && !again && !confirmationActive(r), s.Withdrawn != No && !confirmationActive(r),
		noQuorum(r, s), now.Sub(s.At) > freshFor, offInhibited(r, s), again && s.NodesUnseen,
		s.Power.Unwitnessed: // perhaps it is off already
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

// switchOff is step 1 after its first command: Off until that is proven.
func switchOff(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	if r = recordOffLease(r, s, now); s.Power.State == bmc.On {
		r = retargetNode(r, s)
	}
	found, noEffect := interlockAt(stageSwitchingOff, r, s), binding{}
	if r.Attempt == 1 && noEffectYet(r, s) { // the lock or Off failed, and what justified the run may be gone: until then it needs the justification it began with // I4
		noEffect = interlockAt(stageNoEffect, r, s)
	}
	switch {
	case offProven(r, s, now) && leaseQuiet(r, s, now) && powerLockHeld(r, s):
		r.Proof = cmp.Or(s.ProofKind, ProofBMC)
		note := ""
		if r.Level > 0 || r.Proof != ProofBMC { // something else than the BMC proved the host off
			note = "proven off by " + levelName(r, s)
		}
		return enter(r, DeleteNode, note, now)
	case found.ends():
		return found.apply(r, s, now)
	case levelMiswired(r, s, now):
		return giveUpOnLevel(r, s, reason.OutletContradicted, miswiredNote(r, s), now)
	case s.PowerError.RefusesAccount():
		return giveUpOnLevel(r, s, powerReason(s, ""), "the BMC refuses the account", now) // retrying locks it
	case levelUnusable(s) && hasNextLevel(r):
		return nextLevel(r, s, "it does not support what is needed", now)
	case timeExpired(s, now, r.Deadline()) && s.API != APIReachable && offProven(r, s, now):
		return giveUpIsolation(r, s, now) // only the Lease is not known to stand still
	case timeExpired(s, now, r.Deadline()):
		code, note := offFailed(r, s)
		return giveUpOnLevel(r, s, code, note, now)
	case noEffect.ends():
		return noEffect.apply(r, s, now)
	case noEffectYet(r, s) && preconditionsUnknown(r, s, now), s.Identity != Yes: // the power lock, too, is a power command // I8
		return r, Nothing, poll
	case s.Contested != No && s.Power.State != bmc.Off: // not even a repeated command; an Off to what reads Off changes nothing // I22
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

// recordBusy keeps the time of step 1 from running while the BMC has no session free or asks to be
// tried later. Where there is another power level, that is used instead of waiting.
func recordBusy(r Run, s Observation, now time.Time) Run {
	if r.Step != PowerOff || !r.TouchedHost() {
		return r
	}
	busy := (s.PowerError == bmc.KindSessions || s.PowerError == bmc.KindBusy) && s.LevelRefusal == "" && !hasNextLevel(r)
	switch {
	case busy && r.BusySince.IsZero():
		r.BusySince = now
	case !busy && !r.BusySince.IsZero():
		r.StepStarted = r.StepStarted.Add(min(now.Sub(r.BusySince), busyAtMost))
		r.BusySince = time.Time{}
	}
	return r
}

// retargetNode makes the present Node the target of a later attempt. NewNodeUID notes a Node
// of another boot than the isolated one. The first attempt keeps the UID that it was decided
// on, and a Node of another machine, or of an unknown one, is no target. // I2, I6, I27
func retargetNode(r Run, s Observation) Run {
	if n := s.Node; r.Attempt > 1 && n.Exists == Yes && !isOtherMachine(r.Target, n) && !isUnknownMachine(r.Target, n) {
		if registeredAnew(r) || n.registered() && n.BootID != r.Target.BootID && isTargetMachine(r.Target, n) {
			r.NewNodeUID = n.UID
		}
		r.Target.NodeUID, r.Target.BootID = n.UID, cmp.Or(n.BootID, r.Target.BootID)
		if r.Target.SystemUUID == "" && isKnownMachine(r.Target, n) { // from now on the Node identifies the BMC // I8
			r.Target.SystemUUID = n.SystemUUID
		}
	}
	return r
}

// registeredAnew says whether the target of a later attempt is a Node that registered
// after the power cycle before.
func registeredAnew(r Run) bool { return r.NewNodeUID != "" && r.NewNodeUID == r.Target.NodeUID }

// noEffectYet says whether no power lock and no Off has taken effect at this level.
func noEffectYet(r Run, s Observation) bool {
	return !s.OffAccepted && s.Power.State != bmc.Off && powerLockFree(r, s)
}

// preconditionsUnknown says whether a fresh look leaves open what a first Off needs: the
// justification of a first attempt, the state of the Node in a later one. // I4
func preconditionsUnknown(r Run, s Observation, now time.Time) bool {
	switch {
	case r.Attempt == 1 && s.Justified != Yes, nodeRecovered(r, s):
		return true
	case r.Attempt > 1 && (s.Node.Exists == CannotTell || s.NodesUnseen || s.PowerForbidden != ""):
		return true
	case s.Withdrawn != No && !confirmationActive(r):
		return true
	}
	return s.API != APIReachable || s.Contested != No || noQuorum(r, s) || now.Sub(s.At) > freshFor
}

// nodeRecovered says whether the Node of a later attempt is Ready by now, and no Off is known
// to have been accepted. Its kubelet was slow, and the missed deadline justifies nothing any
// more. // I4
func nodeRecovered(r Run, s Observation) bool {
	return r.Attempt > 1 && !s.OffAccepted && s.Power.State != bmc.Off && s.Node.Ready == Yes && !isOtherMachine(r.Target, s.Node)
}

// cancelOff ends the Off of a later attempt whose host works after all. An Off whose answer was
// lost shows its effect within offSettle. // I20
func cancelOff(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	since := now.Sub(r.Intent.At)
	switch {
	case s.RenamedTo != "":
		return holdRenamed(r, s, now)
	case !powerLockFree(r, s):
		return releasePowerLock(r, s, now)
	case since >= 0 && since < offSettle: // < 0: the clock was set back
		return r, Nothing, poll
	}
	return acceptReadyNode(r, s, now)
}

// acceptReadyNode goes on with a Node that is Ready before a later attempt has begun. What may
// be off is switched on first; then step 4 checks the Node like any that registers.
func acceptReadyNode(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	const note = "the Node is Ready after all"
	switch {
	case registeredAnew(r), s.Node.UID == r.Target.NodeUID && s.Node.BootID != r.Target.BootID: // its own UID and boot ID would count as the old ones in step 4
		r.Target.NodeUID, r.Target.BootID = "", ""
	case r.Isolation == IsolateDelete && s.Node.UID == r.Target.NodeUID:
		return holdFalseOff(r, neverOffNote, now) // I5, I6
	}
	r.OnSeen, r.Revalidate = now, false
	if r.Intervened {
		return enter(r, PowerOn, note, now)
	}
	return enter(r, AwaitNode, note, now)
}

// offProven is the proof that step 2 needs. // I1
func offProven(r Run, s Observation, now time.Time) bool {
	return r.Intervened && s.OffAccepted && s.Identity == Yes && s.Proof.Proven(now)
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

// leaseQuiet says whether the Lease stood still long enough after the first Off. A Lease that was
// renewed shortly before might be renewed again by a running host.
func leaseQuiet(r Run, s Observation, now time.Time) bool {
	if !s.Lease.Known || r.OffLease == nil {
		return false
	}
	l := *r.OffLease
	recent := (l.KubeletReporting || s.Proof.Since().Sub(l.RenewTime) < l.recentFor()) && l.ResourceVersion != ""
	since := times.Later(s.Proof.Since(), l.Seen) // while the API did not answer, nothing showed that it stood still
	return !recent || now.Sub(since) >= l.quietFor()
}

// recordOffLease keeps the Lease as it was at the first Off read of the present proof. A Lease that was
// noted before that, by a process before a restart or before a reading that was no Off, says
// nothing about what happened while this process read Off: the host may have been on in between. // I5
func recordOffLease(r Run, s Observation, now time.Time) Run {
	switch off := s.Power.State == bmc.Off; {
	case s.Power.State == bmc.On, !off && leaseAdvanced(r, s):
		r.OffLease = nil
	case off && s.Lease.Known && (r.OffLease == nil || leaseAdvanced(r, s) || r.OffLease.Seen.Before(s.Proof.Since())):
		renewed := leaseAdvanced(r, s)
		l := s.Lease
		l.Seen, l.KubeletReporting = now, l.KubeletReporting || renewed // whatever the host's clock wrote into it
		l.BootID, l.Unregistered = s.Node.BootID, renewed && s.Node.Exists != CannotTell && !s.Node.registered()
		r.OffLease = &l
	}
	return r
}

// falseOffReason returns why the Off that this process reads is false, or "". A false Off freezes a BMC,
// so it is only what cannot be anything else: the boot of the first Off read of this proof lives on,
// or the target's kubelet registered after that read. Another machine may have taken the name, and
// somebody may have switched the host on since an older Off. // I5
func falseOffReason(r Run, s Observation) string {
	n, since := s.Node, s.Proof.Since()
	unknown := n.registered() && isUnknownMachine(r.Target, n) && n.BootID != r.Target.BootID // a boot is of one machine
	if s.Power.State != bmc.Off || since.IsZero() || isOtherMachine(r.Target, n) || unknown {
		return ""
	}
	if leaseAdvanced(r, s) && !r.OffLease.Seen.Before(since) {
		// A kubelet that has no Node may be another machine's, which registers in the next moment.
		if n.registered() && n.BootID == r.OffLease.BootID || !n.registered() && n.Exists != CannotTell && r.OffLease.Unregistered {
			return "the Node's Lease was renewed although the BMC says Off"
		}
	}
	if n.registered() && n.UID != r.Target.NodeUID && s.Clock == Yes && n.Created.Sub(since) > clockRounding {
		return "a Node of this name registered although the BMC says Off"
	}
	return ""
}

// leaseAdvanced says whether the Lease advanced since the one that the record keeps: what was proven then
// must be proven again. // I5
func leaseAdvanced(r Run, s Observation) bool {
	return r.OffLease != nil && s.Lease.renewedSince(*r.OffLease)
}

// powerLockHeld says whether no other power owner may switch the host on: our power lock is set,
// or there is no other owner. powerLockFree says whether our power lock is not set.
func powerLockHeld(r Run, s Observation) bool {
	return r.Target.BareMetalHost == "" || s.PowerLock == Yes
}

func powerLockFree(r Run, s Observation) bool {
	return r.Target.BareMetalHost == "" || s.PowerLock == No
}

// noQuorum says whether it is not known that etcd keeps its quorum without this control-plane
// host. // I12
func noQuorum(r Run, s Observation) bool { return r.ControlPlane && s.Quorum != Yes }

// powerReason is the reason code of a failed step 1: why the BMC could not be asked, or what it
// last refused, otherwise fallback.
func powerReason(s Observation, fallback reason.Code) reason.Code {
	switch {
	case s.LevelRefusal != "":
		return s.LevelRefusal
	case s.PowerError != "":
		return reason.OfBMC(string(s.PowerError))
	}
	return fallback
}

func powerReadText(s Observation) string {
	if s.LevelRefusal != "" {
		return "failed (" + string(s.LevelRefusal) + ")"
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
