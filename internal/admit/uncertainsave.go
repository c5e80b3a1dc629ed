package admit

import (
	"context"
	"errors"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
)

// uncertainSave is the error of a first save that the store may have done all the same: its
// answer may have been lost.
type uncertainSave struct{ error }

// Unwrap returns the error of the store.
func (u uncertainSave) Unwrap() error { return u.error }

// asUncertain marks an error of a first save as uncertain, unless it says that nothing was
// written.
func asUncertain(err error) error {
	if errors.Is(err, state.ErrNotOwner) {
		return err
	}
	return uncertainSave{err}
}

// abortUncertain ends a run whose first record may be in the store although the save failed:
// the next owner of the cluster would find it open, beside a later run on the same host. The
// run stays reserved until its end is stored, or until ctx ends; the next owner then loads
// what is in the store. // I19
func (c *Cluster) abortUncertain(ctx context.Context, r remediate.Run) {
	r = remediate.AbortUnsaved(r, time.Now().UTC())
	for {
		saved, err := state.SaveRun(ctx, c.opt.Lead.Store(), r)
		switch {
		case err == nil:
			c.showEnded(saved)
			return
		case errors.Is(err, state.ErrNotOwner):
			c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Run: r.ID, Message: "abort the run, whose start was not confirmed by the store: " + err.Error() + "; another instance may find it open and continue it"})
			return
		}
		switch inStore, err := state.GetRun(ctx, c.opt.Lead.Store(), r.ID); {
		case err == nil && !inStore.Open(): // again only the answer was lost
			c.showEnded(inStore)
			return
		case err == nil:
			r.Version = inStore.Version
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(run.SaveRetry):
		}
	}
}

// showEnded puts a run that has ended into the Book and reports its end.
func (c *Cluster) showEnded(r remediate.Run) {
	c.book.put(r)
	c.emit(event.Event{Type: event.Stepped, Node: r.Target.Node, Run: r.ID, Step: r.Step, Reason: r.Reason, Message: r.Note})
	c.Wake()
}
