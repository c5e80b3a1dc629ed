package admit

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/run"
)

// Requests holds remediation requests, so that none vanishes while its host may be off.
type Requests interface {
	// Hold sets the finalizer on a request. It is idempotent. It fails if the request is gone or
	// is being deleted.
	Hold(ctx context.Context, q remediate.Request) error
}

// RequestedRuns lets the remediation requests of a cluster become runs.
type RequestedRuns struct {
	c    *Cluster
	book requestBook
}

// requestBook is the part of a Book about requests.
type requestBook struct{ *Book }

// requested lists the remediation requests that fenced carries out.
func (b requestBook) requested(now time.Time) []policy.Requested {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.Requested(b.opt.AnnotatedMachines, now)
}

// runOf returns the newest run of a request, or the open run on its target; nil if there is
// none.
func (b requestBook) runOf(q *policy.Requested) (newest *remediate.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if open, is := b.runs.openOn(q.Target.Subject()); is {
		return &open
	}
	for _, r := range b.runs.byID {
		if isRunOf(r, q.Request) && (newest == nil || r.Open() || !newest.Open() && r.ID > newest.ID) {
			newest = &r
		}
	}
	return newest
}

func isRunOf(r remediate.Run, q *policy.Request) bool {
	return r.Request != nil && r.Request.Kind == q.Kind && r.Request.UID == q.UID
}

func refOf(q *policy.Request) remediate.Request {
	return remediate.Request{Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, UID: q.UID, OnManagementAPI: q.OnManagementAPI}
}

// consider considers the target of every request, and adds the pair of both to pairs. asked are
// the targets that a request wants power-cycled and whose policy allows it. It returns when to
// consider them again; zero: after the next change.
func (w *RequestedRuns) consider(ctx context.Context, pairs map[pair]bool, now time.Time) (asked map[string]bool, due time.Time) {
	asked = map[string]bool{}
	if w.c.opt.Requests == nil {
		return asked, time.Time{}
	}
	for _, q := range w.book.requested(now) {
		t := &q.Target
		if t.Action == policy.None || w.isCarriedOut(&q) || asked[targetKey(t)] {
			continue
		}
		pairs[pair{checkID(q.Check.ID()), targetKey(t)}] = true
		if !t.Acts() {
			w.noteRefusal(&q, now)
			continue
		}
		if a, ok := w.candidate(&q); ok {
			asked[a.key] = true
			due = earliest(due, w.c.consider(ctx, a, now))
		}
		if w.c.tooOld(now) {
			return asked, due
		}
	}
	return asked, due
}

// noteRefusal stores why the policy refuses the target of a request.
func (w *RequestedRuns) noteRefusal(q *policy.Requested, now time.Time) {
	g, t := w.requestGate(q), &q.Target
	r := Refused{CheckID: checkID(q.Check.ID()), Node: t.Node, Machine: t.Machine, Gate: g, NextTry: g.Until}
	w.c.refused.note(pair{r.CheckID, targetKey(t)}, r.of(&q.Check), now)
}

// isCarriedOut says whether a run has carried the request out. One object is carried out once;
// an annotation is a new request each time that it is set.
func (w *RequestedRuns) isCarriedOut(q *policy.Requested) bool {
	return q.Request.Kind != policy.MachineRequestKind && request.IsDone(w.book.runOf(q))
}

// candidate drafts the run of a request; false when its target has changed since it was
// evaluated.
func (w *RequestedRuns) candidate(q *policy.Requested) (candidate, bool) {
	a, ok := w.c.candidate(&q.Check, &q.Target)
	ref := refOf(q.Request)
	a.draft.Request = &ref
	return a, ok
}

// hold sets the finalizer before the run is saved: it must be there before the first
// power command.
func (w *RequestedRuns) hold(ctx context.Context, r remediate.Run) error {
	if r.Request == nil || r.Request.Kind == policy.MachineRequestKind {
		return nil
	}
	if err := w.c.opt.Requests.Hold(ctx, *r.Request); err != nil {
		return &reason.Refusal{Reason: reason.RequestNotHeld, Message: "hold the request of the run, which begins only then: " + err.Error()}
	}
	return nil
}

// requestGates returns a failing gate if the request of a run does not ask for it now. b.mu is
// held.
func (b requestBook) requestGates(r remediate.Run, now time.Time) []reason.Gate {
	code, value := reason.NotUnhealthy, "the request is gone"
	for _, q := range b.ledger.Requested(b.opt.AnnotatedMachines, now) {
		switch t := &q.Target; {
		case !isRunOf(r, q.Request):
		case t.Acts() && (t.Machine != "" && t.MachineUID == r.Target.MachineUID || t.Machine == "" && t.Node == r.Target.Node):
			return nil
		case len(t.Refusals) > 0:
			code, value = t.Refusals[0], t.Message
		default:
			value = t.Message
		}
	}
	return []reason.Gate{{Name: "request", Reason: code, Value: value, Threshold: "still asked for", Source: r.Request.Kind + " " + r.Check}}
}

// requestJustified evaluates the fresh objects of a run by its request. Whether the time for the
// start is over, Withdrawn says. // I4
func (rc *runCluster) requestJustified(r remediate.Run, f run.Fresh, now time.Time) (remediate.Answer, string) {
	var q *policy.Request
	switch {
	case r.Request.Kind == policy.MachineRequestKind && f.Machine == nil:
		return remediate.No, "the Machine is gone"
	case r.Request.Kind == policy.MachineRequestKind && !f.Machine.ExternalRemediationRequested:
		return remediate.No, "the annotation of the Machine is gone"
	case r.Request.Kind == policy.MachineRequestKind:
		q = policy.AnnotatedRequest(f.Machine)
	case !f.RequestRead:
		return remediate.CannotTell, ""
	case f.Request == nil || f.Request.Power == nil:
		return remediate.No, "the request is gone"
	default:
		q = f.Request
	}
	asked, power := *q, *q.Power
	power.Timeout = 0
	asked.Power = &power
	j, seen := evaluation{}, rc.opt.View.View().Synced
	if seen {
		j, seen = rc.opt.Book.evaluationOf(r, f.Machine, f.Node)
	}
	switch {
	case !seen:
		return remediate.CannotTell, ""
	case j.newMachine != "":
		return remediate.No, "Machine " + j.newMachine + " has claimed the Node since"
	}
	t := policy.EvaluateRequest(&asked, policy.Subject{Machine: f.Machine, Node: f.Node, Doubt: j.doubt}, f.Cluster, now)
	switch {
	case t.Verdict != policy.Unhealthy:
		return remediate.No, "the request asks for nothing now: " + t.Message
	case !t.Acts():
		return remediate.No, fmt.Sprintf("refused now: %v", t.Refusals)
	}
	return remediate.Yes, ""
}
