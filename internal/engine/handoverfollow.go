package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// followAll reads the object of every record, and does its next step, whatever became of the check.
func (w *handoverWriter) followAll(ctx context.Context) {
	h := w.c.admit.Handovers
	known := map[string]bool{}
	for _, r := range h.Records() {
		if ctx.Err() != nil {
			return
		}
		known[r.ID] = true
		if r.Unreadable != "" {
			continue // it blocks its target until a person gives it up
		}
		if !r.Blocking() {
			w.try(ctx, r.ID, r.Target, r.Check, "end the record of another remediator", func() error { return h.Settle(ctx, r, time.Now()) })
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
	for _, r := range h.Records() {
		if why := w.ignored[r.ID]; why != "" && r.Blocking() {
			ignored[r.Check] = why
		}
	}
	h.SetIgnored(ignored, time.Now())
}

// follow reads the object of a record and does its next step. An error says also what is waited for.
func (w *handoverWriter) follow(ctx context.Context, r escalate.Record) error {
	h, o := w.c.admit.Handovers, r.Newest()
	if err := h.FreePlace(ctx, r.ID, false, time.Now()); err != nil {
		return err
	}
	live, err := w.c.opt.Handovers.Read(ctx, o)
	served := !errors.Is(err, escalate.ErrNotServed)
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
			return h.Change(ctx, r.ID, func(o *escalate.Object) { o.Gone = now.UTC() })
		}
		return nil
	}
	if o.UID == "" && live.MadeBy == o.Mark {
		o.UID = live.UID
		if err := h.Change(ctx, r.ID, func(o *escalate.Object) { o.UID = live.UID }); err != nil {
			return err
		}
	}
	step, ignored, ok := h.Next(r, live, seen.deleting, now)
	if ok { // else the last answer stays
		w.ignored[r.ID] = ignored
	}
	if err := h.FreePlace(ctx, r.ID, step.StandsStill || ignored != "", now); err != nil {
		return err
	}
	switch {
	case !ok || step.Do == escalate.Nothing:
		return nil
	case step.Do == escalate.Wait && live.Deleting && now.Sub(seen.deleting) < escalate.IgnoredAfter: // a remediator may take its time to let go
		return nil
	case step.Do == escalate.Wait:
		return &reason.Refusal{Reason: reason.Contested, Message: step.Why}
	}
	if step.Over && o.TimedOut.IsZero() { // before the object is gone: else its template would be tried again
		if err := h.Change(ctx, r.ID, func(o *escalate.Object) { o.TimedOut = now.UTC() }); err != nil {
			return err
		}
	}
	if err := h.Stopped(r, step.Tidies); err != nil {
		return err
	}
	if wrote, err := w.write(ctx, o, live, step); err != nil || !wrote { // the next round reads what is new
		return err
	}
	w.c.emit(w.event(r, r.Check, map[escalate.Do]string{
		escalate.TimeOut: "give up on ", escalate.Delay: "note the recovery on ", escalate.Delete: "delete ",
	}[step.Do]+o.String()+": "+step.Why))
	return nil
}

// write makes one change in the cluster. It returns false if nothing was written.
func (w *handoverWriter) write(ctx context.Context, o escalate.Object, live *policy.Request, step escalate.Step) (bool, error) {
	switch step.Do {
	case escalate.TimeOut:
		return w.c.opt.Handovers.TimeOut(ctx, o)
	case escalate.Delay:
		return w.c.opt.Handovers.Delay(ctx, o)
	case escalate.Delete:
		return w.c.opt.Handovers.Delete(ctx, o, live)
	}
	return false, nil
}

// recordSeen updates what is known of the object of a record.
func (w *handoverWriter) recordSeen(id string, o escalate.Object, live *policy.Request, now time.Time) seenObject {
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
