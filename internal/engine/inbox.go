package engine

import (
	"sync"

	"github.com/fenced/fenced/internal/remediate"
)

// order is what a person wants of one run: a change of its record, or why it may
// not be. The worker makes it between two looks; done gets nil once it is durable.
type order struct {
	change func(remediate.Run) (remediate.Run, error)
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
