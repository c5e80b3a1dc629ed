package run

import (
	"context"
	"sync"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
)

// order is a person's order to one run: a change of its record, or a refusal. The worker applies
// it between two looks. done receives nil once the change is durable, or the error.
type order struct {
	change func(remediate.Run) (remediate.Run, error)
	event  event.Event // reports the order
	done   chan error
}

// inbox holds the orders to one run until its worker takes them.
type inbox struct {
	wake chan struct{} // an order may have arrived, or a person may have stopped something

	mu     sync.Mutex
	list   []order
	closed bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put adds an order. It returns false if the worker has ended.
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

// hasOrders reports whether an order has arrived that the record does not show yet.
func (b *inbox) hasOrders() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.list) > 0
}

// take removes and returns the orders, the oldest first.
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

// takeOrders applies the orders of people to the record, where the record allows them.
func (w *worker) takeOrders(ctx context.Context) {
	for _, o := range w.inbox.take() {
		next, err := o.change(w.run)
		if err == nil {
			if o.event.Actor != remediate.SelfActor { // only a person may have mended an account
				w.power.retryAccount(ctx, w.run)
			}
			err = w.apply(ctx, o.event, next)
		}
		o.done <- err
	}
}

// apply stores what an order makes of the run. It first records who gave the order, so that no
// crash leaves the effect alone. If that cannot be recorded, apply goes on: the order may bring a
// host back, and every destructive action that follows is recorded by itself. // I24
func (w *worker) apply(ctx context.Context, ev event.Event, next remediate.Run) error {
	ev, recordError := w.r.opt.Cluster.Record(ev)
	ev.Recorded = ev.Recorded && recordError == nil
	saved, err := w.r.opt.Cluster.Save(ctx, next)
	if err != nil {
		w.emit(event.Event{Type: event.Failed, Actor: ev.Actor, Why: ev.Why, Message: "save that " + ev.Message + ": " + err.Error()})
		w.reread(ctx) // it may have been stored all the same
		return err
	}
	w.r.emit(ev)
	w.run = saved
	return nil
}
