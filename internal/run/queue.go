package run

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// looksAtOnce bounds the looks of runs at one API at a time. It is more than
	// guards.maxInFlightTotal unless somebody raised that. A crowd that asked at once
	// would share the client's rate: each look would take so long that no proof of off
	// is young enough when it ends, and no run would ever get on.
	looksAtOnce = 32
	// unhurried is how long a look may wait behind those that came later and hurry.
	unhurried = 5 * time.Second
)

// queue lets some go on at a time, and the others in the order of their due times:
// however many hurry, everybody's turn comes.
type queue struct {
	size int

	mu      sync.Mutex
	inside  int
	waiting []*waiter // the earliest due first
}

type waiter struct {
	due  time.Time
	turn chan struct{} // closed when it has come
}

// enter waits for a turn; leave ends it. It is false when ctx ended before.
func (q *queue) enter(ctx context.Context, due time.Time) bool {
	q.mu.Lock()
	if q.inside < q.size {
		q.inside++
		q.mu.Unlock()
		return true
	}
	w := &waiter{due: due, turn: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(q.waiting, due, func(w *waiter, due time.Time) int {
		if w.due.After(due) {
			return 1
		}
		return -1 // behind those that are due at the same time
	})
	q.waiting = slices.Insert(q.waiting, at, w)
	q.mu.Unlock()
	select {
	case <-w.turn:
		return true
	case <-ctx.Done():
	}
	q.mu.Lock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 { // the turn came meanwhile
		q.leave()
	}
	return false
}

// leave gives the turn to the first who waits.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.inside--
		return
	}
	close(q.waiting[0].turn)
	q.waiting = q.waiting[1:]
}
