package run

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// looksAtOnce is how many runs may look at one API at the same time. It is more than the
	// default of guards.maxInFlightTotal. If too many looked at the same time, they would share
	// the client's rate limit. Then each look would take so long that no proof of off is fresh
	// when it ends, and no run would make progress.
	looksAtOnce = 32
	// deletedAtOnce is how many runs may look at the same time whether the Machine is gone that
	// they have deleted. Nothing depends on it but their end, so the Machines that are still to
	// be deleted go before.
	deletedAtOnce = 2
	// overtakeLimit is for how long later, more urgent looks may overtake a look.
	overtakeLimit = 5 * time.Second
)

// queue admits a limited number at a time, in the order of their due times. However many urgent
// ones arrive, each waiter is admitted in the end.
type queue struct {
	size int

	mu      sync.Mutex
	inside  int
	waiting []*waiter // in the order of their due times
}

type waiter struct {
	due  time.Time
	turn chan struct{} // closed when the waiter is admitted
}

// enter waits until the caller is admitted. It returns false if ctx ended before. After true,
// the caller must call leave.
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
		return -1 // after those that are due at the same time
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
	if i < 0 { // it was admitted meanwhile
		q.leave()
	}
	return false
}

// leave admits the first waiter, if there is one.
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
