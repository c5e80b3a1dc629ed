package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// 3 PowerOn. Goal: the power lock is released and the host reads On, at the level that switched it
// off and at each level below. An abandoned cycle comes here too. It ends when the Node is known not
// to have been deleted after all.
func powerOn(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	r = detectLateIsolation(r, s, now)
	bmh, commanded := r.Target.BareMetalHost != "", r.Intent.Action == SendOn || r.Intent.Action == ReleasePowerLock
	believedOff := r.Abandon == "" && !commanded && r.OnSeen.IsZero() && s.Power.State == bmc.Off && !belowOffLevel(r)
	on, note := levelOn(r, s, now)
	stays := on && offSettled(r, s, now)
	late, longLate := timeExpired(s, now, r.Deadline()), timeExpired(s, now, r.Started.Add(r.Limits.RunTimeout))
	unread := r.Abandon != "" && s.Node.Exists == CannotTell || bmh && s.PowerLock == CannotTell
	if believedOff && falseOffReason(r, s) == "" {
		r = recordOffLease(r, s, now)
	}
	switch {
	case stays && r.Level > 0:
		return previousLevel(r, s, note, now)
	case stays && longLate && unread && s.API == APIForbidden:
		return stop(r, reason.APIForbidden, "the API server forbids what the run needs; its host is On", now)
	case stays && longLate && unread && s.API != APIReachable: // it may never answer again // L1
		return stop(r, reason.APIUnreachable, apiLostNote(s)+"; its host is On", now)
	case stays && (!bmh || s.PowerLock == No):
		return hostPoweredOn(r, s, note, now)
	case believedOff && falseOffReason(r, s) != "":
		return holdFalseOff(r, falseOffReason(r, s), now)
	case late && !on && s.LevelRefusal == reason.AddressChanged: // no command reaches what was switched off, and no time changes that // I10, L1
		return holdAddressChanged(r, now)
	case !on && leftToOther(r) && (late || powerLockFree(r, s)):
		return waitForOther(r, now)
	case late && !on && daemonWasAway(r, s, now) && !(longLate && inTheDark(s)):
		anew, _, _ := enter(r, PowerOn, daemonAwayNote, now)
		anew.Level, anew.Intent = r.Level, r.Intent // what was sent before still counts
		return anew, Nothing, poll
	case late && !on && anyOnPending(r):
		return stop(r, reason.OutletContradicted, onPendingNote+"; last read: "+powerReadText(s), now)
	case late && !on && r.Abandon != "":
		return stop(r, reason.PowerOnFailed, "abandoned ("+string(r.Abandon)+"), and the host does not read On; last read: "+powerReadText(s), now)
	case late && r.AbandonTo == Held && s.API == APIForbidden: // fenced cannot release the power lock, a person can
		return stop(r, r.Reason, r.Note, now)
	case late && !on && s.OwnerWantsOff: // that is no defect for which the Machine is to be replaced
		return waitForOwner(r, now)
	case late && !on && inTheDark(s): // nothing shows that its Machine is to be replaced // L1
		return stop(r, reason.PowerOnFailed, "neither BMC nor API server answered, so no On was sent; the run goes on when the BMC answers", now)
	case late && !on:
		r.Reason, r.Note = reason.PowerOnFailed, "the host was not read On in time; last read: "+powerReadText(s)
		return enter(r, Reprovision, r.Note, now)
	case believedOff && mayReleasePods(r, s, now):
		return command(r, ReleasePods, resendWrite, now)
	case now.Sub(r.StepStarted) < pauseBeforeOn && !on:
		return r, Nothing, poll
	case r.Abandon == "" && s.PodsGone != Yes && now.Sub(r.Isolated) < r.Limits.PodsGoneTimeout: // I7
		return r, Nothing, poll
	case bmh && s.PowerLock == Yes:
		return command(r, ReleasePowerLock, resendWrite, now)
	case on || s.Identity == No || leftToOther(r): // waits for the API or a late Off; never commands another machine's BMC
		return r, Nothing, poll
	case inTheDark(s): // the record may be an old backup: the first look says whether its host is off
		return r, Nothing, poll
	case belowOffLevel(r) && levelUnreachable(s) && !onPending(r): // its BMC boots, or lost its power with the host
		return r, Nothing, poll
	}
	return command(r, SendOn, resendPower, now)
}

// inTheDark says whether nothing has told this process anything about the host: it has sent no Off, and neither
// the BMC nor the API server answers.
func inTheDark(s Observation) bool {
	return !s.OffAccepted && s.PowerError != "" && s.API == APIUnreachable
}

// waitForOwner stops a run whose host its owner has switched off again, after the isolation. fenced
// does not fight the owner. When the owner wants the host on, the run goes on by itself.
func waitForOwner(r Run, now time.Time) (Run, Action, time.Duration) {
	return stop(r, reason.PowerForbidden, "the owner of the host wants it off (online: false) and switched it off again; the run goes on when that is over", now)
}

// leftToOther says whether fenced leaves the power of the host to the bare-metal operator: somebody else
// has requested that the host is off, and may do to its Node what only a host that is off allows. The operator
// cannot switch on what an outlet has cut off. // I20, I22
func leftToOther(r Run) bool { return r.Level == 0 && r.OtherPowerLock != "" }

// waitForOther stops a run whose host may not be switched on while somebody else's request lasts. It goes
// on by itself when that is gone, or when the host reads On.
func waitForOther(r Run, now time.Time) (Run, Action, time.Duration) {
	note := "BareMetalHost " + r.Target.BareMetalHost + " carries the power request " + r.OtherPowerLock + " of somebody else, so fenced does not switch the host on; " +
		"the run goes on when that annotation is gone or the host is On"
	if r.Abandon != "" {
		note = "abandoned (" + string(r.Abandon) + "); " + note
	}
	return stop(r, reason.PowerForbidden, note, now)
}

func hostPoweredOn(r Run, s Observation, note string, now time.Time) (Run, Action, time.Duration) {
	switch {
	case r.Abandon != "" && s.Node.Deleting && timeExpired(s, now, r.Started.Add(r.Limits.RunTimeout)):
		return stop(r, reason.NodeFinalizer, "a finalizer keeps the deleted Node; its host is On", now)
	case r.Abandon != "" && (s.Node.Exists == CannotTell || s.Node.Exists == Yes && s.Node.Deleting):
		return r, Nothing, poll
	case r.Abandon != "" && levelUnreachable(s) && belowOffLevel(r): // nothing else would show that the host stayed off // I20
		return stop(r, reason.PowerOnFailed, "abandoned ("+string(r.Abandon)+"), and "+note, now)
	case r.Abandon != "" && r.AbandonTo == Held:
		return stop(r, r.Reason, r.Note, now)
	case r.Abandon != "":
		return finish(r, Aborted, r.Reason, r.Note, now)
	}
	r.OnSeen = now
	return enter(r, AwaitNode, note, now)
}

// detectLateIsolation resumes an abandoned cycle whose isolation was done although its answer
// was lost: the Node is gone, or carries our taint.
func detectLateIsolation(r Run, s Observation, now time.Time) Run {
	gone := s.Node.Exists == No && r.Target.NodeUID != "" || s.Node.Exists == Yes && s.Node.UID != r.Target.NodeUID && isolationBegan(r, s)
	if r.Abandon != "" && (gone || isTainted(r, s)) {
		r.Isolated, r.Abandon, r.AbandonTo, r.Reason, r.Note = now, "", "", "", ""
	}
	return r
}

const daemonAwayNote = "fenced could not send On in time: the daemon or its store was away, or neither BMC nor API server answered"

// daemonWasAway says whether the time for On ran out while no daemon could send it. That says
// nothing about the host. So it gets its whole time again, before its Machine is replaced or a
// person is called for a host that only needs to be switched on. // I20
func daemonWasAway(r Run, s Observation, now time.Time) bool {
	last := times.Later(r.Intent.At, times.Later(r.StepStarted, r.Isolated.Add(r.Limits.PodsGoneTimeout)))
	mayCommand := s.Identity != No && (!belowOffLevel(r) || !levelUnreachable(s) || onPending(r))
	return mayCommand && now.Sub(last) > daemonAwayFor
}

// mayReleasePods says whether the pods and VolumeAttachments of the isolated Node are to be
// deleted at once. The isolation must be on the record, the host must still be proven off by
// this process, and no kubelet may have registered since: a pod that is bound to the Node's name
// now was bound to the Node that was proven off. It delays On for no longer than the wait for
// the pods. // I1, I2, I7
func mayReleasePods(r Run, s Observation, now time.Time) bool {
	switch {
	case !r.Limits.ReleasePods, r.Isolated.IsZero(), r.Abandon != "", r.Target.NodeUID == "":
		return false
	case now.Sub(r.Isolated) >= max(r.Limits.PodsGoneTimeout, pauseBeforeOn), now.Sub(s.At) > freshFor:
		return false
	case s.Power.State != bmc.Off, !offProven(r, s, now), s.API != APIReachable, s.Paused, s.Contested != No:
		return false
	case !StillIsolated(r, s.Node), targetReplaced(r, s) != "": // I27
		return false
	}
	return s.PodsReleased == No || s.VolumesReleased == No
}

// StillIsolated says whether the Node is as the isolation left it: gone, or tainted and not
// booted since.
func StillIsolated(r Run, n Node) bool {
	if r.Isolation == IsolateTaint {
		return n.Exists == Yes && n.UID == r.Target.NodeUID && n.BootID == r.Target.BootID && n.OutOfService && !n.Deleting
	}
	return n.Exists == No
}
