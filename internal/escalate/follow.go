package escalate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/request"
)

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
	seen := w.noteSeen(r.ID, o, live, now)
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
	step, ignored, ok := h.next(r, live, seen.deleting, now)
	if ok { // else the last answer stays
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

// noteSeen updates what is known of the object of a record.
func (w *writer) noteSeen(id string, o request.Object, live *policy.Request, now time.Time) seenObject {
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
