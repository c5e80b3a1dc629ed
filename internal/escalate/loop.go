package escalate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sort"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/run"
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
	for i, o := range w.inTurn(w.c.asks(time.Now())) {
		if i == maxRequests || ctx.Err() != nil {
			return
		}
		w.try(ctx, nameOf(o), o.Draft.Target, o.Check.Key(), "ask another remediator, by an object from "+o.Template.Kind+" "+o.Template.Name, func() error { return w.ask(ctx, o.Candidate) })
	}
}

// nameOf is what an ask is in writer.failed.
func nameOf(o ask) string { return o.Check.Mark() + "|" + cluster.SubjectOf(o.Draft.Target) }

// inTurn sorts asks: those that have not failed before those that have, and of these the one first that has waited longest. However many
// fail again and again, they keep no other one waiting. // L1
func (w *writer) inTurn(list []ask) []ask {
	sort.SliceStable(list, func(i, j int) bool { return w.failed[nameOf(list[i])].Next.Before(w.failed[nameOf(list[j])].Next) })
	return list
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
	if last = last.After(now, retry, retryMax); code == reason.Contested || code == reason.Paused || code == reason.Hold || code == reason.ClockSkew {
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

// followAll reads the object of every record, and does its next step, whatever became of the check.
func (w *writer) followAll(ctx context.Context) {
	h := w.c
	known := map[string]bool{}
	for _, r := range h.records.All() {
		if ctx.Err() != nil {
			return
		}
		known[r.ID] = true
		if r.Unreadable != "" {
			continue // it blocks its target until a person gives it up
		}
		if !r.Blocking() {
			w.try(ctx, r.ID, r.Target, r.Check, "end the record of another remediator", func() error { return h.settle(ctx, r, time.Now()) })
			continue
		}
		w.try(ctx, r.ID, r.Target, r.Check, "look after "+r.Newest().String(), func() error {
			return w.follow(ctx, r)
		})
	}
	for id := range w.seen {
		if !known[id] {
			delete(w.seen, id)
			delete(w.failed, id)
		}
	}
	maps.DeleteFunc(w.ignored, func(id, _ string) bool { return !known[id] })
	for key, f := range w.failed {
		if time.Since(f.Next) > time.Hour { // nobody asks for it any more
			delete(w.failed, key)
		}
	}
	ignored := map[string]string{} // by check
	for _, r := range h.records.All() {
		if why := w.ignored[r.ID]; why != "" && r.Blocking() {
			ignored[r.Check] = why
		}
	}
	h.setIgnored(ignored, time.Now())
}

// follow reads the object of a record and does its next step. An error says also what is waited for.
func (w *writer) follow(ctx context.Context, r Record) error {
	h, o := w.c, r.Newest()
	if err := h.freePlace(ctx, r.ID, false, time.Now()); err != nil {
		return err
	}
	live, err := w.objects.Read(ctx, o)
	served := !errors.Is(err, request.ErrNotServed)
	if err != nil && served {
		if seen, was := w.seen[r.ID]; was { // it may have been there meanwhile
			seen.missing = time.Time{}
			w.seen[r.ID] = seen
		}
		return fmt.Errorf("read %s: %w", o, err)
	}
	now := time.Now()
	seen := w.recordSeen(r.ID, o, live, now)
	if live == nil {
		delete(w.ignored, r.ID)
		if o.IsGone(seen.missing, seen.letGo && served, now) {
			return h.change(ctx, r.ID, func(o *request.Object) { o.Gone = now.UTC() })
		}
		return nil
	}
	if o.UID == "" && live.MadeBy == o.Mark {
		o.UID = live.UID
		if err := h.change(ctx, r.ID, func(o *request.Object) { o.UID = live.UID }); err != nil {
			return err
		}
	}
	clock, wrong := h.opt.View.Clock()
	step, ignored, ok := h.next(r, live, seen.deleting, now)
	if ok && clock != remediate.No { // else the last answer stays
		w.ignored[r.ID] = ignored
	}
	if err := h.freePlace(ctx, r.ID, step.StandsStill || ignored != "", now); err != nil {
		return err
	}
	switch {
	case !ok || step.Do == Nothing:
		return nil
	case step.Do == Wait && live.Deleting && now.Sub(seen.deleting) < IgnoredAfter: // a remediator may take its time to let go
		return nil
	case step.Do == Wait:
		return &reason.Refusal{Reason: reason.Contested, Message: step.Why}
	case clock == remediate.No && !step.Tidies: // its time may not be over, and it would never be asked again // I16
		return &reason.Refusal{Reason: reason.ClockSkew, Message: wrong}
	}
	if step.Over && o.TimedOut.IsZero() { // before the object is gone: else its template would be tried again
		if err := h.change(ctx, r.ID, func(o *request.Object) { o.TimedOut = now.UTC() }); err != nil {
			return err
		}
	}
	if err := h.stopped(r, step.Tidies); err != nil {
		return err
	}
	if wrote, err := w.write(ctx, o, live, step); err != nil || !wrote { // the next round reads what is new
		return err
	}
	w.c.emit(w.event(r, r.Check, map[Do]string{
		TimeOut: "give up on ", Delay: "note the recovery on ", Delete: "delete ",
	}[step.Do]+o.String()+": "+step.Why))
	return nil
}

// write makes one change in the cluster. It returns false if nothing was written.
func (w *writer) write(ctx context.Context, o request.Object, live *policy.Request, step Step) (bool, error) {
	switch step.Do {
	case TimeOut:
		return w.objects.TimeOut(ctx, o)
	case Delay:
		return w.objects.Delay(ctx, o)
	case Delete:
		return w.objects.Delete(ctx, o, live)
	}
	return false, nil
}

// recordSeen updates what is known of the object of a record.
func (w *writer) recordSeen(id string, o request.Object, live *policy.Request, now time.Time) seenObject {
	seen := w.seen[id]
	switch {
	case live != nil:
		was := seen
		if seen = (seenObject{uid: o.UID, letGo: live.Finalizer}); !live.Deleting {
			break
		}
		if seen.deleting = now; was.uid == o.UID && !was.deleting.IsZero() {
			seen.deleting = was.deleting
		}
	case seen.uid != o.UID:
		seen = seenObject{uid: o.UID, missing: now}
	case seen.missing.IsZero():
		seen.missing = now
	}
	w.seen[id] = seen
	return seen
}

// locks are the Leases on the Nodes for which another remediator is asked, in a cluster that has
// such Leases (medik8s). The controller of a NodeHealthCheck holds the Lease for the remediator while its
// request exists, and fenced does so in its place: whoever would drain or repair the Node keeps away. // I22
type locks struct {
	kube run.Kube
	held map[string]lease // by the ID of the record
}

// lease is a Lease that this process has taken, or may have.
type lease struct {
	run  remediate.Run // as whose it is held
	next time.Time     // of the next renewal
}

// lockEvery is the time between two renewals of a Lease on a Node.
const lockEvery = time.Minute

// take takes or renews the Lease for the record of a request. An error says that fenced may not hold
// it; it is a *reason.Refusal if somebody else does.
func (l *locks) take(ctx context.Context, r Record) error {
	if r.Target.Node == "" {
		return nil
	}
	as := remediate.Run{ID: r.ID, Target: r.Target, Step: remediate.PowerOff} // take it, do not only renew it
	began := time.Now()
	binds, foreign, err := l.kube.LockNode(ctx, as)
	switch {
	case foreign != "":
		delete(l.held, r.ID)
		return &reason.Refusal{Reason: reason.Contested, Message: foreign}
	case err != nil:
		l.held[r.ID] = lease{run: as} // it may have been written
		return fmt.Errorf("keep other remediators away from Node %s: %w", r.Target.Node, err)
	}
	l.held[r.ID] = lease{as, began.Add(lockEvery)}
	if binds > 0 {
		l.held[r.ID] = lease{as, began.Add(min(lockEvery, binds/2))}
	}
	return nil
}

// renew renews the Lease while the object of a record may exist.
func (l *locks) renew(ctx context.Context, r Record) error {
	if time.Now().Before(l.held[r.ID].next) {
		return nil
	}
	return l.take(ctx, r)
}

// giveBack gives the Lease back. After a restart nobody knows of it any more, and it expires by itself.
func (l *locks) giveBack(ctx context.Context, id string) error {
	if err := l.kube.UnlockNode(ctx, l.held[id].run); err != nil {
		return fmt.Errorf("let other remediators have Node %s again: %w", l.held[id].run.Target.Node, err)
	}
	delete(l.held, id)
	return nil
}

// lockAll renews the Leases of the records whose object may exist, and gives back those of the others.
// What fails delays nothing: the object is looked after all the same.
func (w *writer) lockAll(ctx context.Context) {
	blocking := map[string]bool{}
	for _, r := range w.c.records.All() {
		if r.Unreadable != "" || !r.Blocking() {
			continue
		}
		blocking[r.ID] = true
		w.try(ctx, "lock "+r.ID, r.Target, r.Check, "hold the Lease on the Node", func() error { return w.locks.renew(ctx, r) })
	}
	for id, l := range w.locks.held {
		if !blocking[id] {
			w.try(ctx, "unlock "+id, l.run.Target, id, "give the Lease on the Node back", func() error { return w.locks.giveBack(ctx, id) })
		}
	}
}
