package escalate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/times"
)

// Objects makes the requests for other remediators in one cluster. Each write concerns only the
// object of a record, with its UID and its mark.
type Objects interface {
	// Missing says why nobody can carry out requests from a template; "" if somebody may. An error
	// means that this is not known.
	Missing(ctx context.Context, check *policy.Check, t policy.Template) (why string, err error)
	// Prepare reads what a request is made from, past every cache. An error is a *reason.Refusal
	// where a rule forbids it.
	Prepare(ctx context.Context, check *policy.Check, t remediate.Target, template policy.Template, controlPlane bool) (request.Draft, error)
	// Read reads what may be the object of a record (Object.MayBe), past every cache; nil if it
	// does not exist. The error is an request.ErrNotServed if its kind is not served.
	Read(ctx context.Context, o request.Object) (*policy.Request, error)
	// TimeOut tells the remediator of an object to stop, and Delay notes on it that its target has
	// recovered now. Both, and Delete, return false if nothing was written, because the object has changed.
	TimeOut(ctx context.Context, o request.Object) (wrote bool, err error)
	Delay(ctx context.Context, o request.Object) (wrote bool, err error)
	// Delete deletes an object, if it has not changed since it was read.
	Delete(ctx context.Context, o request.Object, live *policy.Request) (wrote bool, err error)
}

const (
	// round is how often the objects are looked at although nothing was decided. A step that failed is tried again after
	// retry, doubled each time up to retryMax.
	round    = 2 * time.Second
	retry    = 10 * time.Second
	retryMax = 5 * time.Minute
	// maxRequests is how many requests are written in one round.
	maxRequests = 20
	// confirmedFor is how old the fresh reads may be when an object is made. // I4
	confirmedFor = 10 * time.Second
)

// writer makes, changes and deletes the requests for other remediators. It has its own
// goroutine: no decision and no run waits for it. What it does follows from the records in the store
// and from the objects, which it reads in each round. So a restart loses nothing, and neither does
// whoever changes or deletes the check.
type writer struct {
	c       *Cluster
	objects Objects
	// failed is when a step that failed is tried again, by what it is.
	failed map[string]times.Backoff
	// seen is what is known of the objects of records, by the ID of the record.
	seen map[string]seenObject
	// ignored is the last answer why nobody carries out the object of a record, by the ID of the record.
	ignored map[string]string
	locks   locks
}

// seenObject is what is known of an object.
type seenObject struct {
	uid     string
	letGo   bool      // it had a finalizer when it was last seen
	missing time.Time // since when it has not existed
	// deleting is since when it is deleted; after a restart, since that was seen
	deleting time.Time
}

func newWriter(c *Cluster, o Objects) *writer {
	return &writer{c: c, objects: o, failed: map[string]times.Backoff{}, seen: map[string]seenObject{}, ignored: map[string]string{},
		locks: locks{kube: c.opt.Kube, held: map[string]lease{}}}
}

func (w *writer) run(ctx context.Context) error {
	tick := time.NewTicker(round)
	defer tick.Stop()
	for {
		asks := false
		select {
		case <-ctx.Done():
			return nil
		case <-w.c.changed:
			asks = true
		case <-tick.C:
		}
		w.round(ctx, !asks)
	}
}

// round does the next step of every target. reads: also for the objects that exist.
func (w *writer) round(ctx context.Context, reads bool) {
	if w.c.opt.Lead.WhyNotAct(time.Now()) != "" {
		clear(w.seen) // what comes after the next leadership began is another observation
		clear(w.locks.held)
		return
	}
	leadership := w.c.opt.Lead.Enter()
	if leadership == nil {
		return
	}
	defer leadership.Leave()
	ctx, cancel, whyNot := w.c.opt.Lead.Bound(ctx, true)
	if whyNot != "" {
		return
	}
	defer cancel()
	if reads {
		w.followAll(ctx)
		w.lockAll(ctx)
	}
	for i, o := range w.c.asks(time.Now()) {
		if i == maxRequests || ctx.Err() != nil {
			return
		}
		key := o.Check.Mark() + "|" + cluster.SubjectOf(o.Draft.Target)
		w.try(ctx, key, o.Draft.Target, o.Check.Key(), "ask another remediator, by an object from "+o.Template.Kind+" "+o.Template.Name, func() error { return w.ask(ctx, o.Candidate) })
	}
}

// try does one step. After an error it is tried again later; it is told once, and by explain.
func (w *writer) try(ctx context.Context, key string, t remediate.Target, check, what string, do func() error) {
	last := w.failed[key]
	if time.Now().Before(last.Next) {
		return
	}
	err := do()
	now := time.Now()
	if err == nil {
		if delete(w.failed, key); last.Failing() {
			w.c.note(t, check, "", "", now, now)
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	code := reason.RequestFailed
	if r, ok := reason.AsRefusal(err); ok {
		code = r.Reason
	}
	if !last.Failing() {
		w.c.emit(event.Event{Type: event.Failed, Node: t.Node, Machine: t.WithoutNode(), Reason: code,
			Message: fmt.Sprintf("%s for check %s, which is tried again: %v", what, check, err)})
	}
	if last = last.After(now, retry, retryMax); code == reason.Contested || code == reason.Paused || code == reason.Hold {
		last.Next = now.Add(round / 2) // what it waits for can end at any time
	}
	w.failed[key] = last
	w.c.note(t, check, code, err.Error(), now, last.Next.Add(3*round))
}

// ask asks another remediator. The record is stored, and the audit log has it, before the object is
// made. // I19, I24
func (w *writer) ask(ctx context.Context, o cluster.Candidate) error {
	h := w.c
	if err := w.refuseBesideController(ctx, o.Check); err != nil {
		return err
	}
	draft, err := w.objects.Prepare(ctx, o.Check, o.Draft.Target, *o.Template, o.Draft.ControlPlane)
	if err != nil {
		return err
	}
	confirmed := time.Now()
	if err := w.c.admit.Confirm(ctx, o); err != nil {
		return err
	}
	r, err := h.reserve(ctx, o, draft.Object)
	if err != nil {
		return err
	}
	if err := w.locks.take(ctx, r); err != nil {
		return errors.Join(err, h.notMade(ctx, r))
	}
	ev, err := w.c.admit.Record(w.event(r, cluster.CheckID(o.Check.ID()), "ask another remediator, by "+r.Newest().String()+" from "+o.Template.Kind+" "+o.Template.Name+": "+o.Draft.Trigger))
	if err != nil {
		return errors.Join(fmt.Errorf("write the request to the audit log before it is made: %w", err), h.notMade(ctx, r))
	}
	if err = h.stopped(r, false); err == nil && time.Since(confirmed) > confirmedFor {
		err = fmt.Errorf("state, audit log and Lease took %s; the target may have recovered meanwhile", time.Since(confirmed).Round(time.Second))
	}
	if err != nil {
		return errors.Join(err, h.notMade(ctx, r))
	}
	w.c.emit(ev)
	uid, err := draft.Create(ctx, r.Newest(), r.Check)
	switch {
	case errors.Is(err, request.ErrNotMade):
		return errors.Join(err, h.notMade(ctx, r))
	case err != nil:
		return err // perhaps it was made: the record stays until that is known
	}
	return h.change(ctx, r.ID, func(o *request.Object) { o.UID = uid })
}

// refuseBesideController refuses to make the requests of a NodeHealthCheck while its own
// controller is alive: that makes them. The other checks are paused for theirs. // I22
func (w *writer) refuseBesideController(ctx context.Context, check *policy.Check) error {
	if check.Kind != policy.NodeHealthCheckKind || check.UID == "" {
		return nil
	}
	alive, err := w.c.controllerAlive(ctx, check.ID())
	if err != nil {
		return fmt.Errorf("ask whether the controller of NodeHealthCheck %s is alive: %w", check.Name, err)
	}
	if alive != remediate.No {
		return &reason.Refusal{Reason: reason.Contested, Message: "the controller of NodeHealthCheck " + check.Name + " is alive and makes its requests; " +
			"stop it, or remove the annotation fenced.io/evaluator"}
	}
	return nil
}

// event tells a step for a record.
func (w *writer) event(r Record, check, message string) event.Event {
	return event.Event{Type: event.Requested, Node: r.Target.Node, Machine: r.Target.WithoutNode(), Check: check, Message: message}
}
