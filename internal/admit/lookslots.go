package admit

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// How many candidates look at the cluster at the same time. The first of many then becomes a run
// while others have not begun: if all looked at once, all would wait for the slowest. Looks at
// the same time share what they read, which saves the API server work. So each look that ends
// lets one more begin, until there are looksAtMost, or nobody looks. The BMCs are read before that,
// all at once, because they may hang. // L3
const (
	looksAtFirst = 8
	looksAtMost  = 32
)

// lookSlots admits candidates to their look at the cluster.
type lookSlots struct {
	free *semaphore.Weighted

	mu     sync.Mutex
	inside int   // who look, or wait for that
	kept   int64 // slots that nobody may take yet
}

func newLookSlots() *lookSlots {
	s := &lookSlots{free: semaphore.NewWeighted(looksAtMost)}
	s.keep()
	return s
}

// keep takes back all slots but looksAtFirst. Nobody uses one.
func (s *lookSlots) keep() {
	if n := looksAtMost - looksAtFirst - s.kept; s.free.TryAcquire(n) {
		s.kept += n
	}
}

// enter waits for a slot. Without an error, the caller must call leave.
func (s *lookSlots) enter(ctx context.Context) error {
	s.mu.Lock()
	s.inside++
	s.mu.Unlock()
	err := s.free.Acquire(ctx, 1)
	if err != nil {
		s.gone()
	}
	return err
}

func (s *lookSlots) leave() {
	s.free.Release(1)
	s.gone()
}

// gone notes that somebody neither looks nor waits any more.
func (s *lookSlots) gone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.inside--; {
	case s.inside == 0:
		s.keep()
	case s.kept > 0:
		s.kept--
		s.free.Release(1)
	}
}
