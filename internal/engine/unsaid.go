package engine

import (
	"context"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// reread takes in the run as it stands in the store, after a save that the store did
// not confirm: it may have been done, and the run may have ended with it.
func (w *worker) reread(ctx context.Context) {
	r, err := state.GetRun(ctx, w.c.lead.Store(), w.run.ID)
	if err != nil {
		return
	}
	w.c.mu.Lock()
	w.c.runs[r.ID], w.c.moved = r, true
	w.c.mu.Unlock()
	w.take(ctx, r)
}

// take goes on with a record that is durable, and tells of a new step.
func (w *worker) take(ctx context.Context, saved remediate.Run) {
	stepped := saved.Step != w.run.Step || len(saved.Steps) != len(w.run.Steps) // also another attempt, or another power level
	w.run = saved
	if !stepped {
		return
	}
	w.emit(event.Event{Type: event.Stepped, Reason: saved.Reason, Message: lastNote(saved)})
	if saved.Step == remediate.DeleteNode && !saved.IsolatesOnConfirmation() { // else nobody has compared who answers
		w.c.hosts.PinProven(ctx, saved)
	}
	w.c.wake() // slots and overlaps changed
}
