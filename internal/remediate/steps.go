package remediate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
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
	s = withoutOtherCluster(r, withoutOtherLevels(r, s))
	r = alignClock(r, s, now)
	r = recordLeaseBaseline(takeOrders(recordContradiction(r, s, now), now), s, now)
	r = recordBusy(recordOtherPowerLock(recordSwitchedOff(r, s), s), s, now)
	r = endOutliving(r, s)
	switch {
	case s.API == APIReachable && !r.APILost.IsZero():
		r = resumeAfterOutage(r, now)
	case s.API == APIReachable:
	case r.APILost.IsZero():
		r.APILost = now
	}
	late := timeExpired(s, now, r.Started.Add(r.Limits.RunTimeout)) && r.Strategy != DeleteMachine // that has a time of its own
	// Step 3 has its own deadline: no host is left off because its run is late. Nor is an abandoned
	// run stopped on its way back to On.
	comingOn := r.Step == PowerOn && (s.Power.State != bmc.On || s.Power.Partial || r.Level > 0)
	if late && !comingOn && r.Abandon == "" && !r.Step.Idle() {
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
	return idleRun(r, s, now)
}

// resumeAfterOutage notes that the API is back. Step 2 gets its whole time again. In steps 4 and
// 5, which could not see the Node, the outage does not count.
func resumeAfterOutage(r Run, now time.Time) Run {
	switch r.Step {
	case DeleteNode:
		r.StepStarted = now
	case AwaitNode, RestoreNode:
		r.OnSeen = r.OnSeen.Add(now.Sub(times.Later(r.APILost, r.OnSeen)))
		r.StepStarted = r.StepStarted.Add(now.Sub(times.Later(r.APILost, r.StepStarted)))
	}
	r.APILost = time.Time{}
	return r
}

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
	case registered && (r.Isolation == IsolateDelete || n.Ready == Yes): // a tainted Node stays: only Ready says that it runs
		return holdFalseOff(r, "the Node registered again without a reboot: its host was never off", now)
	case s.Power.State == bmc.Off && s.OwnerWantsOff:
		return waitForOwner(r, now)
	case s.Power.State == bmc.Off:
		return enter(r, PowerOn, "the host reads Off again", now)
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
	case s.Power.State == bmc.Off && s.OwnerWantsOff:
		return waitForOwner(r, now)
	case s.Power.State == bmc.Off:
		return enter(r, PowerOn, "the host reads Off again", now)
	case !restored && s.API == APIReachable && timeExpired(s, now, r.StepStarted.Add(r.Limits.RestoreTimeout)):
		return stop(r, reason.RestoreFailed, cmp.Or(s.RestoreError, "labels, annotations or taints could not be read back"), now)
	case timeExpired(s, now, r.Deadline()) && restored:
		return nextAttempt(r, s, "the Node was not Ready in time", now)
	case s.Restored == No, s.Restored == Yes && s.Node.OutOfService:
		return command(r, RestoreTargetNode, resendWrite, now)
	}
	return r, Nothing, poll
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
