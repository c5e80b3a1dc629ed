package lead

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

const (
	EverySlot  = 9999        // for a run that must have one, whatever the limit is
	slotsFresh = time.Second // how long what was read of them is good enough to refuse by
)

// Slots are the places for runs in flight over all clusters, as last seen in the
// store. There one is taken or not; here they are only counted, for the gate and for
// explain. // I11
type Slots struct {
	freed func(cluster string) // a cluster has freed some
	io    *semaphore.Weighted  // one reader or writer of them at a time

	mu     sync.Mutex
	taken  map[string]string // run -> cluster
	loaded time.Time         // also when that failed
	failed error             // then
}

// NewSlots knows no slot yet. freed is called when a cluster has freed some: the others
// may have waited for one.
func NewSlots(freed func(cluster string)) *Slots {
	return &Slots{freed: freed, io: semaphore.NewWeighted(1), taken: map[string]string{}}
}

// Count is how many runs are in flight over all clusters, as far as is known.
func (s *Slots) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

// refresh reads the slots if that was not tried a moment ago: of all clusters one
// waits for a store that does not answer. What cannot be read leaves what was known.
// The store is asked again at the start of a run.
func (s *Slots) refresh(ctx context.Context, store state.Store) error {
	if err := s.io.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.io.Release(1)
	s.mu.Lock()
	fresh, failed := time.Since(s.loaded).Abs() < slotsFresh, s.failed
	s.mu.Unlock()
	if fresh {
		return failed
	}
	list, err := state.LoadSlots(ctx, store)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded, s.failed = time.Now(), err
	if err != nil {
		return err
	}
	clear(s.taken)
	for _, each := range list {
		s.taken[each.Run] = each.Cluster
	}
	return nil
}

// Take takes a slot for a run if fewer than limit are taken; ok says whether it has one.
func (s *Slots) Take(ctx context.Context, store state.Store, limit int, cluster, run string) (ok bool, err error) {
	if err := s.io.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer s.io.Release(1)
	ok, err = state.TakeSlot(ctx, store, limit, state.Slot{Cluster: cluster, Run: run})
	if err == nil && ok {
		s.mu.Lock()
		s.taken[run] = cluster
		s.mu.Unlock()
	}
	return ok, err
}

func (s *Slots) free(ctx context.Context, store state.Store, run string) error {
	if err := s.io.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.io.Release(1)
	err := state.FreeSlot(ctx, store, run)
	if err == nil {
		s.mu.Lock()
		delete(s.taken, run)
		s.mu.Unlock()
	}
	return err
}

// of are the runs of a cluster that have slots.
func (s *Slots) of(cluster string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := map[string]bool{}
	for run, of := range s.taken {
		if of == cluster {
			runs[run] = true
		}
	}
	return runs
}

// compareSlots frees the slots of runs that need none any more, also of those that a
// crash left behind, and takes one, even above the limit, for each run that goes on
// without: it is in flight, and counts. The first error ends it, for the next call
// would wait as long for a store that does not answer.
func (l *Lead) compareSlots(ctx context.Context) error {
	s := l.opt.Slots
	if err := s.refresh(ctx, l.opt.Store); err != nil {
		return err
	}
	lacking, needless := l.opt.Cluster.Unsettled(s.of(l.opt.Name))
	for _, run := range lacking {
		if _, err := s.Take(ctx, l.Store(), EverySlot, l.opt.Name, run); err != nil {
			return err
		}
	}
	for _, run := range needless {
		if err := s.free(ctx, l.Store(), run); err != nil {
			return err
		}
	}
	if len(needless) > 0 {
		s.freed(l.opt.Name)
	}
	return nil
}

// SettleSlots lets runs and slots be compared soon, as long as this instance owns the
// cluster. It does not wait for that: the store may be slow.
func (l *Lead) SettleSlots() {
	if t := l.now.Load(); t != nil { // else its runs are not known well enough
		select {
		case t.settle <- struct{}{}:
		default:
		}
	}
}

// runSlots compares runs and slots whenever that is due, until ctx ends, and reports when
// it fails.
func (l *Lead) runSlots(ctx context.Context, t *Leadership) {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.settle:
		}
		err := l.compareSlots(ctx)
		if ctx.Err() == nil && err != nil && !failed {
			l.emit(event.Failed, "", "settle the slots of runs in flight: "+err.Error())
		}
		if failed && err == nil {
			l.opt.Cluster.Wake() // what was waiting for a free one is asked again
		}
		failed = err != nil
	}
}
