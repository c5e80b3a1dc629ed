package run

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
)

// announce emits that an action is about to be done, and returns whether it may be done. A
// destructive action may be done only after that is durable. // I24
func (w *worker) announce(a remediate.Action, seen remediate.Observation) bool {
	ev := event.Event{Type: event.Acting, Action: a, Node: w.run.Target.Node, Machine: w.run.Target.WithoutNode(), Run: w.run.ID, Step: w.run.Step, Check: w.run.CheckID, Inputs: inputs(w.run, seen, time.Now())}
	if by := w.run.Confirmed; by != nil {
		ev.Actor, ev.Why = by.Actor, by.Reason // the confirmation may be all that the action is done on // I26
	}
	if !a.Destructive() {
		w.r.emit(ev)
		return true
	}
	ev, err := w.r.opt.Cluster.Record(ev)
	if err != nil {
		if event.PerhapsRecorded(err) { // I24
			w.emitNotDone(a, err.Error())
		}
		return false
	}
	w.r.emit(ev)
	return true
}

// emitNotDone emits that an announced action was not attempted.
func (w *worker) emitNotDone(a remediate.Action, why string) {
	w.emit(event.Event{Type: event.Failed, Action: a, Message: "not done: " + why})
}

// inputs describes what an action was decided on, for the audit log. // I24
func inputs(r remediate.Run, s remediate.Observation, now time.Time) string {
	answer := map[remediate.Answer]string{remediate.CannotTell: "unknown", remediate.No: "no", remediate.Yes: "yes"}
	api := map[remediate.APIState]string{remediate.APIUnreachable: "unreachable", remediate.APIReachable: "reachable", remediate.APIForbidden: "forbidden"}
	var b strings.Builder
	fmt.Fprintf(&b, "level=%d power=%s raw=%q", s.Level, s.Power.State, s.Power.Raw)
	if s.PowerError != "" {
		fmt.Fprintf(&b, " powerError=%s", cmp.Or(string(s.LevelRefusal), string(s.PowerError)))
	}
	fmt.Fprintf(&b, " proof=%s proven=%t offAccepted=%t identity=%s api=%s", proofOf(r, s), s.Proof.Proven(now), s.OffAccepted, answer[s.Identity], api[s.API])
	fmt.Fprintf(&b, " node=%s nodeUID=%s bootID=%s ready=%s", answer[s.Node.Exists], s.Node.UID, s.Node.BootID, answer[s.Node.Ready])
	if s.Lease.Known {
		fmt.Fprintf(&b, " lease=%q", s.Lease.ResourceVersion)
	}
	fmt.Fprintf(&b, " machineUID=%s justified=%s contested=%s quorum=%s hold=%s podsGone=%s backup=%s",
		s.Machine.UID, answer[s.Justified], answer[s.Contested], answer[s.Quorum], answer[s.PowerLock], answer[s.PodsGone], s.Backup.UID)
	for _, why := range []struct{ key, value string }{{"why", s.Why}, {"withdrawn", s.WithdrawnWhy}, {"contender", s.Contender}, {"quorumWhy", s.QuorumWhy}} {
		if why.value != "" {
			fmt.Fprintf(&b, " %s=%q", why.key, why.value)
		}
	}
	return b.String()
}

// proofOf names what proves the host off, for the audit log. It is the person if the run relies
// on a confirmation alone. // I26
func proofOf(r remediate.Run, s remediate.Observation) string {
	if r.IsolatesOnConfirmation() {
		return fmt.Sprintf("%s by=%q", remediate.ProofHuman, r.Confirmed.Actor)
	}
	return string(s.ProofKind)
}
