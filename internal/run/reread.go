package run

import (
	"context"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// reread takes in the run as it stands in the store, after a save that the store did
// not confirm: it may have been done, and the run may have ended with it.
func (w *worker) reread(ctx context.Context) {
	r, err := state.GetRun(ctx, w.r.opt.Lead.Store(), w.run.ID)
	if err != nil {
		return
	}
	w.r.opt.Cluster.Show(r)
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
		w.r.opt.Hosts.PinProven(ctx, saved)
	}
	w.r.opt.Cluster.Wake() // slots and overlaps changed
}
