package run

import (
	"context"
	"sync"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
)

// order is what a person wants of one run: a change of its record, or why it may
// not be. The worker makes it between two looks; done gets nil once it is durable.
type order struct {
	change func(remediate.Run) (remediate.Run, error)
	event  event.Event // tells of it
	done   chan error
}

// inbox holds the orders of one run until its worker takes them.
type inbox struct {
	wake chan struct{} // something may have come, or people have stopped something

	mu     sync.Mutex
	list   []order
	closed bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put adds an order; false when the worker has ended.
func (b *inbox) put(o order) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.list = append(b.list, o)
	b.kick()
	return true
}

// kick makes the worker look again now.
func (b *inbox) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// waiting says whether an order has come that the record does not show yet.
func (b *inbox) waiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.list) > 0
}

// take gives the orders that came, the oldest first.
func (b *inbox) take() []order {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = nil
	return list
}

// close refuses every order that was not taken, and all later ones.
func (b *inbox) close(why error) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	for _, o := range b.take() {
		o.done <- why
	}
}

// obey makes people's orders part of the record, where that allows them.
func (w *worker) obey(ctx context.Context) {
	for _, o := range w.inbox.take() {
		next, err := o.change(w.run)
		if err == nil {
			w.mended(ctx)
			err = w.carryOut(ctx, o.event, next)
		}
		o.done <- err
	}
}

// carryOut stores what an order makes of the run. First it is recorded who gave it: no
// crash may leave only its effect behind. But what cannot be recorded is done all the
// same, for it may bring a host back; what hurts afterwards is recorded by itself. // I24
func (w *worker) carryOut(ctx context.Context, told event.Event, next remediate.Run) error {
	told, unrecorded := w.r.opt.Cluster.Record(told)
	told.Recorded = told.Recorded && unrecorded == nil
	saved, err := w.r.opt.Cluster.Save(ctx, next)
	if err != nil {
		w.emit(event.Event{Type: event.Failed, Actor: told.Actor, Why: told.Why, Message: "save that " + told.Message + ": " + err.Error()})
		w.reread(ctx) // it may have been stored all the same
		return err
	}
	w.r.emit(told)
	w.run = saved
	return nil
}
