package remediate

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// onAnswer judges one answer of Next against the truth. r is the record that
// was asked about and r2 the answer, which is saved before a is done.
func (v *variant) onAnswer(w *world, r, r2 Run, s Observation, a Action, now time.Time) []string {
	var bad []string
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	switch a { // I3
	case Nothing, SetPowerLock, ReleasePowerLock, SendOff, SendOn, BackupNode, IsolateNode, ReleasePods, RestoreTargetNode, ClearRequest, DeleteTargetMachine:
	default:
		fail("I3: %q is no absolute action", a)
	}
	if a != Nothing && r2.Intent != (Intent{Action: a, At: now}) {
		fail("I19: %s is given, and the record to be saved before it says %q", a, r2.Intent.Action)
	}
	if (a == SendOff || a == SetPowerLock) && r.Attempt > 1 && !s.OffAccepted && s.Power.State != bmc.Off && s.Node.Ready == Yes {
		fail("I4: %s to a Node that is Ready, in attempt %d", a, r.Attempt)
	}
	if (r.Step == PowerOff || r.Step == DeleteNode) && r2.Reason == reason.ConfirmedOffContradicted && s.Power.State == bmc.Off && w.on && r.Proof != ProofHuman && falseOffReason(r, s) != "" {
		fail("I5: a BMC that lies beside a confirmation is not frozen")
	}
	if r.Step.Idle() && r.LeaveOff && w.on && falseOffReason(r, s) != "" && r2.Reason != reason.FalseOff && r2.Reason != reason.ConfirmedOffContradicted {
		fail("I5: a false Off of a host that is left off is not noticed")
	}
	if r2.Reason == reason.FalseOff && r.Reason != reason.FalseOff && w.uid != 0 && w.bootID == 0 && !leaseAdvanced(r, s) {
		fail("I5: a Node that no kubelet has made counts as a sign of life")
	}
	switch a {
	case SendOff:
		bad = append(bad, v.onOff(r, s, now)...)
	case IsolateNode:
		bad = append(bad, v.onIsolate(w, r, s)...)
	case SendOn:
		if r2.Abandon == "" && w.isolatedAt >= 0 && !w.podsGone(v) && w.now-w.isolatedAt < int(r.Limits.PodsGoneTimeout/time.Second) {
			fail("I7: On %d s after the isolation, with pods bound", w.now-w.isolatedAt)
		}
		if w.otherLock && (s.API == APIReachable || r.OtherPowerLock != "") && r.Level == 0 {
			fail("I22: On while somebody else requests that the host is off")
		}
	case ReleasePods:
		bad = append(bad, v.onRelease(w, r, s)...)
	case DeleteTargetMachine:
		if s.Machine.Replaceable != Yes || s.Paused || s.Machine.UID != r.Target.MachineUID {
			fail("I14: the Machine is deleted although that is not allowed")
		}
		if r.ControlPlane && (r.Strategy != DeleteMachine || !r.Limits.ReplaceControlPlane) {
			fail("I14: the Machine of a control-plane member is replaced")
		}
		if r.ControlPlane && s.Quorum != Yes {
			fail("I12: a Machine is replaced without a quorum to spare")
		}
		if w.on && w.ready && w.bootID > 1 && w.uid != 0 {
			fail("the Machine of a Node that is back and Ready is deleted")
		}
	}
	if w.worn.fought {
		fail("I21: a label that its owner took off is put back")
	}
	bad = append(bad, onAsked(w, r, s, a)...)
	bad = append(bad, onDropped(w, r, s, a)...)
	bad = append(bad, onOtherMachine(w, s, a)...)
	bad = append(bad, onFalseOff(w, r, r2)...)
	bad = append(bad, v.onOrders(w, r, r2, s, a)...)
	bad = append(bad, v.onClock(w, r, r2, s, a)...)
	if (r.Step == AwaitNode || r.Step.Idle()) && r2.Step == RestoreNode && w.isolatedBoot != 0 && !w.ordered { // a person may vouch for any Node
		if w.bootID == w.isolatedBoot || v.isolation != IsolateTaint && w.uid == w.isolatedUID {
			fail("I6: accepted a Node that did not register anew")
		}
	}
	return bad
}

// onOff: nothing is switched off against what the reads of this look said.
func (v *variant) onOff(r Run, s Observation, now time.Time) (bad []string) {
	switch {
	case s.Identity != Yes:
		bad = append(bad, "I8: Off to a BMC whose identity was not read")
	case s.Power.Contradicted:
		bad = append(bad, "I8: Off to outlets that feed another machine")
	case s.Paused:
		bad = append(bad, "I23: Off while paused")
	case r.Unfence != nil:
		bad = append(bad, "Off although a person wants the host back")
	case !r.Intervened && now.Sub(s.At) > freshFor:
		bad = append(bad, "I4: Off on old reads")
	case !r.Intervened && r.Attempt == 1 && s.Justified != Yes:
		bad = append(bad, "I4: Off without a fresh reason")
	case !r.Intervened && r.ControlPlane && s.Quorum != Yes:
		bad = append(bad, "I12: Off without a quorum to spare")
	case v.bmh && s.PowerLock != Yes:
		bad = append(bad, "Off without a hold: Metal3 would switch the host on again")
	}
	return bad
}

// onIsolate is the invariant that everything is there for.
func (v *variant) onIsolate(w *world, r Run, s Observation) (bad []string) {
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	switch {
	case r.Proof == ProofHuman:
		bad = w.onConfirmation(r, s)
	case !w.ack:
		fail("I1: isolated without an acknowledged Off in this process")
	case w.first < 0 || w.last-w.first < 3:
		fail("I1: isolated without two Off reads three seconds apart")
	case w.now-w.last > 5:
		fail("I1: isolated on a read %d s old", w.now-w.last)
	case int(w.memory.level) != r.Level:
		fail("I1: isolated on what another level read")
	case s.Identity != Yes:
		fail("I1: isolated on a session without identity")
	case w.on && !w.lied && !w.sincePower:
		fail("I1: isolated while the host is on")
	}
	if r.Proof != ProofHuman && w.first >= 0 && w.kubeletRuns() && w.upFor-bootDelay > w.now-w.first {
		fail("I5: isolated while its kubelet lives, %d s after the first Off read", w.now-w.first)
	}
	if r.Attempt == 1 && r.Target.NodeUID != uid(1) {
		fail("I2: the target became %s", r.Target.NodeUID)
	}
	if s.Node.UID != r.Target.NodeUID {
		fail("I2: isolates %s instead of %s", s.Node.UID, r.Target.NodeUID)
	}
	if w.backupUID == 0 || uid(w.backupUID) != s.Node.UID || versions[w.backupRV] != s.Node.ResourceVersion {
		fail("I21: isolated without a backup of exactly this object")
	}
	if s.Paused {
		fail("I23: isolated while paused")
	}
	if v.bmh && s.PowerLock != Yes {
		fail("isolated while Metal3 may switch the host on")
	}
	return bad
}

// onEnd judges the world that an ended run leaves behind.
func (v *variant) onEnd(st *state) (bad []string) {
	r, w := &st.rec, &st.w
	fail := func(format string, args ...any) {
		bad = append(bad, fmt.Sprintf("%s %s: ", r.Step, r.Reason)+fmt.Sprintf(format, args...))
	}
	if w.hold {
		fail("the hold stands on the BareMetalHost")
	}
	if v.onClosed(w, *r, &bad) {
		return bad
	}
	if v.feedsAnother && w.contradicted && w.cut != [2]bool{} { // I20
		fail("another machine's outlet is off, and we switched it off")
	}
	if r.Step == Reprovisioned {
		if !w.machineGone && !w.marked {
			fail("the Machine is there")
		}
		return bad // the host is its next owner's
	}
	if !w.on && w.byUs { // I20
		fail("the host is off, and we switched it off")
	}
	if w.cut != [2]bool{} && v.outlet != lame && !v.feedsAnother { // I20
		fail("an outlet is off, and we switched it off")
	}
	if w.oos {
		fail("our taint is on the Node")
	}
	if r.Step == Done {
		switch {
		case !w.labels && !w.worn.took: // I21
			fail("the labels are not back")
		case w.requested && r.Reason != "RequestNotCleared":
			fail("the request is on the Machine")
		case w.uid == 0:
			fail("there is no Node")
		}
	}
	if r.Step == Aborted && !w.labels && !w.ordered && (st.crash || w.isolatedUID != 0 && w.uid != w.isolatedUID && !w.machineGone && !w.other && !w.copied) {
		fail("the labels are lost")
	}
	return bad
}

// onRest judges an idle run that has come to rest: what must not be off for
// ever was switched on.
func (v *variant) onRest(st *state) string {
	r, w := &st.rec, &st.w
	switch {
	case v.restsForgotten(st):
		return "L1: the request was deleted because the Node is gone, and the run rests although attempts are left"
	case !r.Step.Idle() || v.ignoresOn || v.neverBack() || v.bmh && v.forbidden || w.apiDown > 0 || w.lied || !r.Isolated.IsZero() || r.LeaveOff:
		return ""
	case w.byUs && !w.on && !w.otherLock:
		return "I20: " + string(r.Step) + " " + string(r.Reason) + ": the Node was not isolated, and the host stays off"
	case v.feedsAnother && v.outlet != lame && w.cut != [2]bool{}:
		return "I20: " + string(r.Step) + " " + string(r.Reason) + ": another machine's outlet stays off"
	case v.restsUnasked(st):
		return "L1: nobody asks for the run, or its name is another machine's, and it rests for ever: " + string(r.Reason)
	case w.hold:
		return string(r.Step) + " " + string(r.Reason) + ": the hold stays on the BareMetalHost"
	}
	return ""
}

// longest is more than any run may take without faults, the time to be healthy
// in Held included.
const longest = 1200

// settle follows every state without further faults to its end: there is one
// (L1), and a crash does not change which (I20).
func (x *explorer) settle() {
	for i := range x.nodes {
		x.follow(int32(i))
	}
	for i := range x.nodes {
		n := x.nodes[i]
		switch {
		case n.settled == "endless":
			x.check(int32(i), none, "L1: the run never ends")
		case n.distance > longest:
			x.check(int32(i), none, fmt.Sprintf("L1: %d s to the end", n.distance))
		case n.crash && !x.v.wide && n.settled != x.nodes[0].settled:
			x.check(int32(i), none, fmt.Sprintf("I20: ends %q after a crash, and %q without", n.settled, x.nodes[0].settled))
		}
		if len(x.found) >= stopAfter {
			return
		}
	}
}

func (x *explorer) follow(i int32) {
	var path []int32
	on := map[int32]int{}
	for x.nodes[i].settled == "" {
		n := &x.nodes[i]
		if n.end.Ended() {
			n.settled = result(n.end, n.reason)
			break
		}
		if at, again := on[i]; again {
			x.circle(path[at:])
			break
		}
		on[i] = len(path)
		path = append(path, i)
		i = n.fine
	}
	for j := len(path) - 1; j >= 0; j-- {
		n := &x.nodes[path[j]]
		if n.settled == "" {
			to := x.nodes[n.fine]
			n.settled, n.distance = to.settled, to.distance+int(n.seconds)
		}
	}
}

// circle settles states that come round for ever: good for Held, for a run that waits for the
// API with its host on, for one whose cause lasts, and for one that tries again in a world that
// never heals; for nothing else.
func (x *explorer) circle(ids []int32) {
	held, waiting, paused, acts, excused, rest := true, true, false, false, true, x.nodes[ids[0]].rest
	for _, id := range ids {
		if x.nodes[id].rest == "" {
			rest = ""
		}
		held = held && x.nodes[id].end == Held
		waiting = waiting && x.nodes[id].mayRest
		paused, acts = paused || x.nodes[id].end == Waiting, acts || x.nodes[id].end != Waiting
		excused = excused && x.nodes[id].excused
	}
	if rest != "" {
		x.check(ids[0], none, rest)
	}
	for _, id := range ids {
		n := &x.nodes[id]
		switch {
		case held:
			n.settled = result(Held, n.reason)
		case waiting:
			n.settled = result(Waiting, n.reason)
		case paused && acts && x.v.want == triesAgain:
			n.settled = triesAgain
		case excused:
			n.settled = "waits for the API"
		default:
			n.settled = "endless"
		}
	}
}

func result(s Step, code string) string {
	if code == "" {
		return string(s)
	}
	return string(s) + " " + code
}

// provenBy is a proof that no BMC gave, for the broken forms of Next.
func provenBy(at time.Time) bmc.Proof {
	off := func(at time.Time) bmc.Reading { return bmc.Reading{State: bmc.Off, At: at} }
	return bmc.Proof{Spacing: 1, MaxAge: time.Hour}.Add(off(at.Add(-1))).Add(off(at))
}
