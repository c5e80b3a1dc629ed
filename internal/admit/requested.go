package admit

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
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
	list := w.requested(now)
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

// maxUUIDText bounds a system UUID that is shown, in bytes: it was read from the request.
const maxUUIDText = 64

// requested lists the remediation requests. One whose finalizer stands for an unknown run on another machine asks for nothing: a run on the
// machine that has taken the name of the Node would not bring that one back, and would take its finalizer. // I20
func (w *RequestedRuns) requested(now time.Time) []cluster.RequestWithRun {
	list := w.model.Requested(now)
	w.recordHolds(list, now)
	for i := range list {
		q := &list[i]
		if !w.isUnknown(*q) {
			continue
		}
		if a, _ := w.candidate(&q.Requested); cluster.IsOnOtherMachine(q.Request.Power, a.Draft.Target) {
			t := &q.Target
			t.Verdict, t.Reason, t.Refusals = policy.Indeterminate, reason.TargetChanged, []reason.Code{reason.TargetChanged}
			t.Message = "its Node is on another machine now, and a run that fenced does not know may have switched off the former one (system UUID " +
				bmc.Printable(q.Request.Power.HeldMachine, maxUUIDText) + "): see that the former one is on, then remove the finalizer fenced.io/power with kubectl"
		}
	}
	return list
}

// candidate drafts the run of a request; false when its target has changed since it was
// evaluated.
func (w *RequestedRuns) candidate(q *policy.Requested) (cluster.Candidate, bool) {
	a, ok := w.c.candidate(&q.Check, &q.Target)
	ref := cluster.RefOf(q.Request)
	a.Draft.Request = &ref
	a.Draft.Limits.MaxAttempts = min(a.Draft.Limits.MaxAttempts, w.c.model.Options.Draft.Limits.Now().Run.MaxAttempts)
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

// RequestState is what one remediation request is told.
type RequestState struct {
	Ref          remediate.Request
	Target       remediate.Target // zero if no Machine and no Node of the request is seen
	Status       request.Status
	HasFinalizer bool   // the watch shows the finalizer on it that this installation set for this cluster
	HeldBy       string // as the finalizer was set
	// HoldFor is for which run it is to get the finalizer now, as request.Holder writes it; "" if that is not to be set. Else a run sets it at its start.
	HoldFor string
	// Starting: the start of its run may fail yet, so it is told nothing before that is known.
	Starting bool
	// Unproven: it would be told that its target has recovered, and the view may still be that from
	// before it was made, or is an old one. It is told so only once. // I16
	Unproven bool
	// Stale: the request is an annotation on a Machine whose Node is Ready, and no run is open.
	Stale bool
}

// States returns what the requests of the cluster are told now. It leaves out those whose
// target is not seen and that had no run: on a shared management API they may be of another
// cluster.
func (w *RequestedRuns) States(now time.Time) (list []RequestState) {
	if !w.c.model.Objects.Seen() {
		return nil
	}
	current := w.c.view.IsCurrent()
	requested := w.requested(now)
	proven := w.provenSince(requested, now)
	clock, wrong := w.c.view.Clock()
	for i, q := range requested {
		r, unknown := q.Run, w.isUnknown(q)
		held := q.Request.Power.HasFinalizer
		if q.Target.Subject() == "" && r == nil && !held {
			continue
		}
		a, found := w.candidate(&q.Requested)
		if clock == remediate.No && isOverByTime(q) { // I16
			q.Target.Reason, q.Target.Message = reason.ClockSkew, wrong
		}
		s := RequestState{
			Ref: cluster.RefOf(q.Request), HasFinalizer: held, HeldBy: q.Request.Power.HeldBy, Starting: q.HasOpenRun() && cluster.IsUnsaved(*r),
			Status:   request.Of(q.Requested, r, q.RunOver, request.Refusal{}, unknown),
			Unproven: !q.HasOpenRun() && !request.IsDone(r) && q.Target.Verdict == policy.Healthy && !(current && proven[q.Request.UID]),
		}
		if s.Status.Phase == request.Pending && i < maxExplained {
			s.Status = request.Of(q.Requested, r, q.RunOver, w.whyNotStarted(&q.Requested, now), unknown)
		}
		if found {
			s.Target = a.Draft.Target
		}
		if q.IsCarriedOn() {
			s.HoldFor = request.Holder(*r)
		}
		s.Stale = q.Request.Kind == policy.MachineRequestKind && q.Target.Verdict == policy.Healthy && (r == nil || !r.Open())
		list = append(list, s)
	}
	return list
}

// isOverByTime says whether only the time in which its run must have begun has ended a request. A clock that is
// wrong ends nothing: the request would be over for ever.
func isOverByTime(q cluster.RequestWithRun) bool {
	return q.Target.Reason == reason.RequestTimeout && q.Request.TimedOut.IsZero()
}

// provenSince says of which requests the ledger is as new as they are, by UID: it has what was read
// after they were first seen. The watches of two kinds keep no order, so a request may be seen
// before the condition of the Node that made somebody create it.
func (w *RequestedRuns) provenSince(list []cluster.RequestWithRun, now time.Time) map[string]bool {
	taken := w.c.view.takenUntil()
	w.mu.Lock()
	defer w.mu.Unlock()
	seen, proven := map[string]time.Time{}, map[string]bool{}
	for _, q := range list {
		uid := q.Request.UID
		at, known := w.firstSeen[uid]
		if !known {
			at = now
		}
		seen[uid], proven[uid] = at, taken.After(at)
	}
	w.firstSeen = seen
	return proven
}

// recordHolds records which requests have a finalizer that this process has not set, for a run that nobody
// knows: one that was lost with the state may have switched the host off. So may one that has touched nothing as far
// as the state shows, which may be a backup. // I20
func (w *RequestedRuns) recordHolds(list []cluster.RequestWithRun, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := map[string]bool{}
	for _, q := range list {
		uid := q.Request.UID
		there[uid] = true
		if _, noted := w.unknown[uid]; !noted && q.HolderLost {
			w.unknown[uid] = now
		} else if !w.unknown[uid].IsZero() && !q.Request.Power.HasFinalizer {
			delete(w.unknown, uid)
		}
	}
	maps.DeleteFunc(w.unknown, func(uid string, _ time.Time) bool { return !there[uid] })
}

// forgetLost forgets the unknown run of each request whose host reads On since: nothing is left to bring back. It
// returns when to look again; zero if none is unknown. // I20
func (w *RequestedRuns) forgetLost(ctx context.Context, list []cluster.RequestWithRun, now time.Time) (due time.Time) {
	for _, q := range list {
		since := w.unknownSince(q.Request.UID)
		if since.IsZero() {
			continue
		}
		if a, ok := w.candidate(&q.Requested); !ok || cluster.IsOnOtherMachine(q.Request.Power, a.Draft.Target) || !w.c.probes.readsOnSince(ctx, a.Draft.Target, since) {
			due = now.Add(lostEvery)
			continue
		}
		w.mu.Lock()
		w.unknown[q.Request.UID] = time.Time{}
		w.mu.Unlock()
	}
	return due
}

// lostEvery is how often the BMC health check is asked about the host of a lost run.
const lostEvery = 5 * time.Second

func (w *RequestedRuns) unknownSince(uid string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unknown[uid]
}

// isUnknown says whether such a run may be the last that has touched the host of a request: none has
// since, and none that is open brings the host back. A run on another machine does neither.
func (w *RequestedRuns) isUnknown(q cluster.RequestWithRun) bool {
	if w.unknownSince(q.Request.UID).IsZero() {
		return false
	}
	touches := request.IsDone(q.Run) || q.Run != nil && q.Run.TouchedHost() && (q.Run.Open() || !q.HolderLost)
	return !touches || cluster.IsOnOtherMachine(q.Request.Power, q.Run.Target)
}

// maxExplained is for how many requests the gates are evaluated for their status.
const maxExplained = 200

// whyNotStarted returns the first gate that refuses the run of a request. The values of gates
// may hold what a BMC reports, so they are left to fencectl.
func (w *RequestedRuns) whyNotStarted(q *policy.Requested, now time.Time) request.Refusal {
	if !q.Target.Acts() {
		return request.Refusal{}
	}
	a, ok := w.candidate(q)
	if !ok {
		return request.Refusal{}
	}
	g, refused := cluster.FirstFailing(append(w.c.gates(a, w.c.probes.last(a.Key), now), w.c.backOffGates(a, now)...))
	if !refused {
		return request.Refusal{}
	}
	return request.Refusal{Reason: g.Reason, Message: "the gate " + g.Name + " refuses the run; " + explainWith(q)}
}

// explainWith is the command that shows the gates of a target.
func explainWith(q *policy.Requested) string {
	if q.Target.Node != "" {
		return "run fencectl explain " + q.Target.Node
	}
	return "run fencectl explain --machine " + q.Target.Machine
}

// gate says for explain which request asks for a run, and what forbids it; none without a
// request. found is the candidate of the deciding loop.
func (w *RequestedRuns) gate(subject string, now time.Time) (found *cluster.Candidate, gates []reason.Gate) {
	if w.c.opt.Requests == nil {
		return nil, nil
	}
	for _, q := range w.requested(now) {
		t := &q.Target
		if t.Subject() != subject {
			continue
		}
		g := w.requestGate(&q)
		if a, ok := w.candidate(&q.Requested); ok && t.Acts() {
			found = &a
		}
		gates = append(gates, g)
	}
	return found, gates
}

// requestGate says whether a request asks for a run now, and its policy allows that.
func (w *RequestedRuns) requestGate(q *cluster.RequestWithRun) reason.Gate {
	t := &q.Target
	g := reason.NewGate("request", t.Acts() && !q.IsCarriedOut(), reason.NotUnhealthy, t.Message, "asks for a run", q.Request.Kind+" "+q.Check.Key())
	switch {
	case len(t.Refusals) > 0:
		g.Reason = t.Refusals[0]
	case t.Reason == reason.RequestTimeout, t.Reason == reason.Deleting, t.Reason == reason.RequestLimit: // no time ends it
		g.Reason = t.Reason
	}
	return g
}
