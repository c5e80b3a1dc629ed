package admit

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
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
	c     *Cluster
	model *cluster.Model

	mu        sync.Mutex
	notHeld   map[string]time.Time // when a request could not be held, by UID
	firstSeen map[string]time.Time // when a request was first seen, by UID; see provenSince
	unknown   map[string]time.Time // since when a run that nobody knows may have set the finalizer, by UID; zero: none has. See recordHolds
	read      time.Time            // the ledger has all that was read of the cluster until then

	overLimit event.Told[bool] // there are too many requests; only the deciding loop uses it
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

// consider considers the target of every request, and adds the pair of both to pairs. alone are
// the targets that a request wants power-cycled and whose policy allows it; false if a gate refuses
// that run: a run of a check, which may be of another kind, then gets its turn, too. It returns when
// to consider them again; zero: after the next change.
func (w *RequestedRuns) consider(ctx context.Context, pairs map[pair]bool, now time.Time) (alone map[string]bool, due time.Time) {
	alone = map[string]bool{}
	if w.c.opt.Requests == nil {
		return alone, time.Time{}
	}
	list := w.model.Requested(now)
	w.recordHolds(list, now)
	due = w.forgetLost(ctx, list, now)
	w.reportLimit(list)
	for _, q := range list {
		t := &q.Target
		if _, considered := alone[cluster.TargetKey(t)]; considered || t.Action == policy.None || q.IsCarriedOut() || q.HasOpenRun() {
			continue
		}
		k := pair{cluster.CheckID(q.Check.ID()), cluster.TargetKey(t)}
		pairs[k] = true
		if !t.Acts() {
			w.recordRefusal(&q, now)
			due = times.Sooner(due, t.Due)
			continue
		}
		if w.leavesToChecks(q.Request, now) {
			due = times.Sooner(due, now.Add(holdAgain))
			continue
		}
		if a, ok := w.candidate(&q.Requested); ok {
			if check := w.model.Objects.MakerOf(q.Request); check != nil {
				a.Draft.Request.Check = cluster.CheckID(check.ID())
				a.Draft.Limits.Reprovision = a.Draft.Limits.Reprovision && !policy.GoesOnAfterFenced(check) // what follows decides about the Machine // I14
			}
			due = times.Sooner(due, w.c.consider(ctx, a, now))
			_, open := w.model.Runs.OpenOn(t.Subject()) // it may just have begun
			alone[a.Key] = open || !w.c.refused.isRefused(k)
		}
		if w.c.tooOld(now) {
			return alone, due
		}
	}
	return alone, due
}

// reportLimit says once that there are too many requests. Each of the others is told in its status.
func (w *RequestedRuns) reportLimit(list []cluster.RequestWithRun) {
	at := slices.IndexFunc(list, func(q cluster.RequestWithRun) bool { return q.Target.Reason == reason.RequestLimit })
	if w.overLimit.News(at >= 0) {
		w.c.emit(event.Event{Type: event.Failed, Reason: reason.RequestLimit, Message: "there are " + strconv.Itoa(len(list)) + " remediation requests, and not all are looked at: " + list[at].Target.Message})
	}
}

// recordRefusal stores why the policy refuses the target of a request.
func (w *RequestedRuns) recordRefusal(q *cluster.RequestWithRun, now time.Time) {
	g, t := w.requestGate(q), &q.Target
	r := Refused{CheckID: cluster.CheckID(q.Check.ID()), Node: t.Node, Machine: t.Machine, Gate: g, NextTry: g.Until}
	w.c.refused.note(pair{r.CheckID, cluster.TargetKey(t)}, r.of(&q.Check), now)
}

// candidate drafts the run of a request; false when its target has changed since it was
// evaluated.
func (w *RequestedRuns) candidate(q *policy.Requested) (cluster.Candidate, bool) {
	a, ok := w.c.candidate(&q.Check, &q.Target)
	ref := cluster.RefOf(q.Request)
	a.Draft.Request = &ref
	a.Draft.Limits.MaxAttempts = min(a.Draft.Limits.MaxAttempts, w.c.model.Options.Draft.Limits.Run().MaxAttempts)
	return a, ok
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
