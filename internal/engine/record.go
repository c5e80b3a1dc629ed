package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// recorder remembers about which Nodes nothing could be recorded, and why: it is
// told once, and explained.
type recorder struct {
	mu     sync.Mutex
	failed map[string]string
}

// note keeps how the last record about a Node went, and says whether it is the first
// to fail.
func (r *recorder) note(node string, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.failed, node)
		return false
	}
	_, known := r.failed[node]
	r.failed[node] = err.Error()
	return !known
}

// auditGate is a gate for a Node about which nothing could be recorded when that was
// last tried; none otherwise. // L4
func (c *cluster) auditGate(node string) []reason.Gate {
	r := c.e.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	why, failed := r.failed[c.opt.Name+"/"+node]
	if !failed {
		return nil
	}
	return []reason.Gate{{Name: "audit", Reason: reason.AuditFailed, Value: why, Threshold: "a durable record", Source: "audit log"}}
}

// recorded makes an event durable before what it announces is done, and gives it to
// be told of. On an error nothing that hurts may be done. // I24
func (c *cluster) recorded(ev event.Event) (event.Event, error) {
	if c.e.opt.Record == nil {
		return ev, nil
	}
	ev.Cluster, ev.Recorded = c.opt.Name, true
	err := c.e.opt.Record(ev)
	if c.e.recorder.note(c.opt.Name+"/"+ev.Node, err) {
		c.emit(event.Event{
			Type: event.Failed, Node: ev.Node, Run: ev.Run, Step: ev.Step, Action: ev.Action, Reason: reason.AuditFailed,
			Message: "record it before it is done; nothing that hurts is done until that works: " + err.Error(),
		})
	}
	return ev, err
}

// perhapsRecorded says whether a record may come to be durable although nobody waited
// for it to the end. Then what does not come to pass is told each time, or the log
// would speak of more than was done. // I24
func perhapsRecorded(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// announce tells that an action is about to be done and says whether it may be:
// one that hurts only once that is durable. // I24
func (w *worker) announce(a remediate.Action, seen remediate.Observation) bool {
	ev := event.Event{Type: event.Acting, Action: a, Node: w.run.Target.Node, Run: w.run.ID, Step: w.run.Step, Check: w.run.CheckID, Inputs: inputs(w.run, seen, time.Now())}
	if by := w.run.Confirmed; by != nil {
		ev.Actor, ev.Why = by.Actor, by.Reason // it may be done on nothing but this word // I26
	}
	if !a.Destructive() {
		w.c.emit(ev)
		return true
	}
	ev, err := w.c.recorded(ev)
	if err != nil {
		if perhapsRecorded(err) { // I24
			w.undone(a, err.Error())
		}
		return false
	}
	w.c.emit(ev)
	return true
}

// undone tells that an action which was announced was not even tried.
func (w *worker) undone(a remediate.Action, why string) {
	w.emit(event.Event{Type: event.Failed, Action: a, Message: "not done: " + why})
}

// inputs is what an action was decided on, for the record. // I24
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
	for _, why := range []struct{ key, value string }{{"why", s.Why}, {"contender", s.Contender}, {"quorumWhy", s.QuorumWhy}} {
		if why.value != "" {
			fmt.Fprintf(&b, " %s=%q", why.key, why.value)
		}
	}
	return b.String()
}

// proofOf names what proves the host off, for the record: a person, where the run goes
// by nothing but his word. // I26
func proofOf(r remediate.Run, s remediate.Observation) string {
	if r.IsolatesOnConfirmation() {
		return fmt.Sprintf("%s by=%q", remediate.ProofHuman, r.Confirmed.Actor)
	}
	return string(s.ProofKind)
}
