package admit

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/times"
)

// Requests holds remediation requests, so that none vanishes while its host may be off, and reads the templates
// that they are made from.
type Requests interface {
	// SetFinalizer sets the finalizer on a request, for a run as request.Holder writes it. It is idempotent. It fails if
	// the request is gone or is being deleted.
	SetFinalizer(ctx context.Context, q remediate.Request, run string) error
	// TemplateAttempts is how many power cycles fenced's own template of a check allows; 0 leaves that to the
	// configuration, also where the template does not exist. An error: it could not be read.
	TemplateAttempts(ctx context.Context, check *policy.Check, t policy.Template, target remediate.Target) (int, error)
}

// RequestedRuns lets the remediation requests of a cluster become runs.
type RequestedRuns struct {
	c    *Cluster
	book requestBook

	mu        sync.Mutex
	notHeld   map[string]time.Time // when a request could not be held, by UID
	firstSeen map[string]time.Time // when a request was first seen, by UID; see provenSince
	unknown   map[string]time.Time // since when a run that nobody knows may have set the finalizer, by UID; zero: none has. See recordHolds
	read      time.Time            // the ledger has all that was read of the cluster until then

	overLimit bool // there were too many requests; only the deciding loop uses it
}

// holdAgain is how long a request that could not be held leaves its target to the checks.
const holdAgain = 30 * time.Second

// leavesToChecks says whether a request could not be held a moment ago.
func (w *RequestedRuns) leavesToChecks(q *policy.Request, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.notHeld, func(_ string, at time.Time) bool { return now.Sub(at) >= holdAgain })
	return !w.notHeld[q.UID].IsZero()
}

// requestBook is the part of a Book about requests.
type requestBook struct{ *Book }

// asked is one remediation request, with its newest run, or the open run on its target, or the
// newest that has carried it out; nil if there is none.
type asked struct {
	policy.Requested
	run *remediate.Run
	// holderLost: this instance leads, so it knows every run in the state, and not what the one for which the
	// finalizer was set has done.
	holderLost bool
	// runOver: run began for a request that asks for nothing any more, or is gone.
	runOver bool
}

// requested lists the remediation requests that fenced carries out.
func (b requestBook) requested(now time.Time) []asked {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests := b.ledger.Requested(b.opt.AnnotatedMachines, now)
	if len(requests) == 0 {
		return nil
	}
	index := b.runs.ofRequests(now)
	list := make([]asked, len(requests))
	asking := map[string]bool{}
	for _, q := range requests {
		asking[requestKey(q.Request.Kind, q.Request.UID)] = !request.IsOver(q.Request)
	}
	for i, q := range requests {
		lost := b.runs.lacksHolder(q.Request.Power, index.own[requestKey(q.Request.Kind, q.Request.UID)])
		r := index.of(&requests[i], lost)
		list[i] = asked{Requested: q, run: r, runOver: r != nil && r.Request != nil && !asking[requestKey(r.Request.Kind, r.Request.UID)], holderLost: b.leads && lost}
	}
	return list
}

func requestKey(kind, uid string) string { return kind + " " + uid }

func isRunOf(r remediate.Run, q *policy.Request) bool {
	return r.Request != nil && r.Request.Kind == q.Kind && r.Request.UID == q.UID
}

func refOf(q *policy.Request) remediate.Request {
	return remediate.Request{Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, UID: q.UID, OnManagementAPI: q.OnManagementAPI}
}

// consider considers the target of every request, and adds the pair of both to pairs. alone are
// the targets that a request wants power-cycled and whose policy allows it; false if a gate refuses
// that run: a run of a check, which may be of another kind, then gets its turn, too. It returns when
// to consider them again; zero: after the next change.
func (w *RequestedRuns) consider(ctx context.Context, pairs map[pair]bool, now time.Time) (alone map[string]bool, due time.Time) {
	alone = map[string]bool{}
	if w.c.opt.Requests == nil {
		return alone, time.Time{}
	}
	list := w.book.requested(now)
	w.recordHolds(list, now)
	due = w.forgetLost(ctx, list, now)
	w.noteLimit(list)
	for _, q := range list {
		t := &q.Target
		if _, considered := alone[targetKey(t)]; considered || t.Action == policy.None || q.isCarriedOut() || q.hasOpenRun() {
			continue
		}
		k := pair{checkID(q.Check.ID()), targetKey(t)}
		pairs[k] = true
		if !t.Acts() {
			w.noteRefusal(&q, now)
			due = times.Sooner(due, t.Due)
			continue
		}
		if w.leavesToChecks(q.Request, now) {
			due = times.Sooner(due, now.Add(holdAgain))
			continue
		}
		if a, ok := w.candidate(&q.Requested); ok {
			if check := w.book.makerOf(q.Request); check != nil {
				a.draft.Request.Check = checkID(check.ID())
				a.draft.Limits.Reprovision = a.draft.Limits.Reprovision && !policy.GoesOnAfterFenced(check) // what follows decides about the Machine // I14
			}
			due = times.Sooner(due, w.c.consider(ctx, a, now))
			_, open := w.book.OpenOn(t.Subject()) // it may just have begun
			alone[a.key] = open || !w.c.refused.isRefused(k)
		}
		if w.c.tooOld(now) {
			return alone, due
		}
	}
	return alone, due
}

// noteLimit says once that there are too many requests. Each of the others is told in its status.
func (w *RequestedRuns) noteLimit(list []asked) {
	at := slices.IndexFunc(list, func(q asked) bool { return q.Target.Reason == reason.RequestLimit })
	if at >= 0 && !w.overLimit {
		w.c.emit(event.Event{Type: event.Failed, Reason: reason.RequestLimit, Message: "there are " + strconv.Itoa(len(list)) + " remediation requests, and not all are looked at: " + list[at].Target.Message})
	}
	w.overLimit = at >= 0
}

// noteRefusal stores why the policy refuses the target of a request.
func (w *RequestedRuns) noteRefusal(q *asked, now time.Time) {
	g, t := w.requestGate(q), &q.Target
	r := Refused{CheckID: checkID(q.Check.ID()), Node: t.Node, Machine: t.Machine, Gate: g, NextTry: g.Until}
	w.c.refused.note(pair{r.CheckID, targetKey(t)}, r.of(&q.Check), now)
}

// isCarriedOut says whether a run has carried the request out, also if it was not told yet. One
// object is carried out once; an annotation is a new request each time that it is set. // I4
func (q *asked) isCarriedOut() bool {
	return q.Request.Kind != policy.MachineRequestKind && request.IsDone(q.run)
}

// hasOpenRun says whether a run is open on the target. The request is told about that one.
func (q *asked) hasOpenRun() bool { return q.run != nil && q.run.Open() }

// candidate drafts the run of a request; false when its target has changed since it was
// evaluated.
func (w *RequestedRuns) candidate(q *policy.Requested) (candidate, bool) {
	a, ok := w.c.candidate(&q.Check, &q.Target)
	ref := refOf(q.Request)
	a.draft.Request = &ref
	a.draft.Limits.MaxAttempts = min(a.draft.Limits.MaxAttempts, w.c.book.opt.Draft.Limits.Run().MaxAttempts)
	return a, ok
}

// makerOf is the check that made a request; nil if no check of the cluster did.
func (b requestBook) makerOf(q *policy.Request) *policy.Check {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.MakerOf(q)
}

// hold sets the finalizer before the run is saved: it must be there before the first
// power command. From then on this process knows whether a run has begun, unless the finalizer was
// there before.
func (w *RequestedRuns) hold(ctx context.Context, r remediate.Run) error {
	if r.Request == nil || r.Request.Kind == policy.MachineRequestKind {
		return nil
	}
	w.mu.Lock()
	if _, noted := w.unknown[r.Request.UID]; !noted {
		w.unknown[r.Request.UID] = time.Time{}
	}
	w.mu.Unlock()
	if err := w.c.opt.Requests.SetFinalizer(ctx, *r.Request, request.Holder(r)); err != nil {
		w.mu.Lock()
		w.notHeld[r.Request.UID] = time.Now()
		w.mu.Unlock()
		return &reason.Refusal{Reason: reason.RequestNotHeld, Message: "cannot set the finalizer fenced.io/power on " + r.Request.Kind + " " + r.Request.Namespace + "/" + r.Request.Name +
			", so no run starts: " + err.Error() + "; apply rbac.yaml"}
	}
	return nil
}

// isFor says whether the target of a request is that of a run.
func isFor(t *policy.TargetReport, r remediate.Run) bool {
	return t.Machine != "" && t.MachineUID == r.Target.MachineUID || t.Machine == "" && t.Node != "" && t.Node == r.Target.Node
}

// mayNotAsk says whether what a request is, not what its target is now, forbids to carry it out.
func mayNotAsk(t *policy.TargetReport) bool {
	return slices.ContainsFunc(t.Refusals, func(code reason.Code) bool {
		return code == reason.RequestNotTrusted || code == reason.Overlap || code == reason.NodeMismatch || code == reason.NodeNotOwned
	})
}

// notFor says why a request that was just read is not, or not any more, for the target of its run:
// somebody may have edited its owners or its annotation. // I2, I4
func (b requestBook) notFor(q *policy.Request, r remediate.Run, now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch t := b.ledger.RequestTarget(q, now); {
	case !isFor(&t, r):
		return "the request is for another target now"
	case mayNotAsk(&t):
		return "refused now: " + t.Message
	}
	return ""
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
	if why := (requestBook{rc.opt.Book}).notFor(&asked, r, now); why != "" {
		return remediate.No, why
	}
	t := policy.EvaluateRequest(&asked, policy.Subject{Machine: f.Machine, Node: f.Node, Lease: f.Lease, Doubt: j.doubt, NotOwned: j.notOwned}, f.Cluster, now)
	switch {
	case t.Verdict != policy.Unhealthy:
		return remediate.No, "the request asks for nothing now: " + t.Message
	case !t.Acts():
		return remediate.No, "refused now: " + reason.Join(t.Refusals)
	}
	return remediate.Yes, ""
}
