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

// unsure is the error of a first save of which nobody knows whether the store has
// done it: its answer may have been lost.
type unsure struct{ error }

func (u unsure) Unwrap() error { return u.error }

// unsureOf marks an error of a first save as such, unless it says that nothing was
// written.
func unsureOf(err error) error {
	if errors.Is(err, state.ErrNotOwner) {
		return err
	}
	return unsure{err}
}

// takeBack ends a run whose first record may stand in the store although that did
// not say so: the next owner of the cluster would find it open, beside a later run on
// the same host. It keeps its place until the end is stored, or ctx ends; then the
// next one loads what stands there. // I19
func (c *Cluster) takeBack(ctx context.Context, r remediate.Run) {
	r = remediate.AbortUnsaved(r, time.Now().UTC())
	for {
		saved, err := state.SaveRun(ctx, c.opt.Lead.Store(), r)
		switch {
		case err == nil:
			c.settle(saved)
			return
		case errors.Is(err, state.ErrNotOwner):
			c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Run: r.ID, Message: "another instance may find this run open and go on with it: it could not be taken back: " + err.Error()})
			return
		}
		switch stood, err := state.GetRun(ctx, c.opt.Lead.Store(), r.ID); {
		case err == nil && !stood.Open(): // only the answer was lost, again
			c.settle(stood)
			return
		case err == nil:
			r.Version = stood.Version
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(run.SaveRetry):
		}
	}
}

// settle makes a run that has ended what others see.
func (c *Cluster) settle(r remediate.Run) {
	c.book.put(r)
	c.emit(event.Event{Type: event.Stepped, Node: r.Target.Node, Run: r.ID, Step: r.Step, Reason: r.Reason, Message: r.Note})
	c.Wake()
}
