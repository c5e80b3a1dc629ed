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
	EverySlot  = 9999        // the limit for a run that must have a slot in any case
	slotsFresh = time.Second // how long the slots that were read may be used to refuse a run
)

// Slots are the places for runs in flight over all clusters, as they were last read from the store.
// Only the store decides who has a slot. Slots counts them, for the gate and for explain. // I11
type Slots struct {
	freed func(cluster string) // is called after a cluster has freed slots
	io    *semaphore.Weighted  // one reader or writer of them at a time

	mu        sync.Mutex
	taken     map[string]string // run -> cluster
	readAt    time.Time         // the last read, even if it failed
	readError error             // of that read
}

// NewSlots returns Slots that know no slot yet. It calls freed after a cluster has freed slots: the
// other clusters may have waited for one.
func NewSlots(freed func(cluster string)) *Slots {
	return &Slots{freed: freed, io: semaphore.NewWeighted(1), taken: map[string]string{}}
}

// Count returns how many runs are in flight over all clusters, as far as is known.
func (s *Slots) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

// refresh reads the slots, unless somebody has just tried to: if the store does not answer, only one
// of all clusters waits for it. After an error, what was known stays. The start of a run asks the
// store again.
func (s *Slots) refresh(ctx context.Context, store state.Store) error {
	if err := s.io.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.io.Release(1)
	s.mu.Lock()
	fresh, readError := time.Since(s.readAt).Abs() < slotsFresh, s.readError
	s.mu.Unlock()
	if fresh {
		return readError
	}
	list, err := state.LoadSlots(ctx, store)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readAt, s.readError = time.Now(), err
	if err != nil {
		return err
	}
	clear(s.taken)
	for _, each := range list {
		s.taken[each.Run] = each.Cluster
	}
	return nil
}

// Take takes a slot for a run if fewer than limit are taken. ok reports whether the run has one.
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

// free frees the slot of a run, if it has one.
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

// of returns the runs of a cluster that have slots.
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

// compareSlots frees the slots of runs that need none any more, also those that a crash left behind.
// It takes one, even above the limit, for each open run that has none: that run is in flight, and
// counts. It stops at the first error, because each further call would wait as long for a store
// that does not answer.
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

// CompareSlots makes runSlots compare runs and slots soon, if this instance owns the cluster. It does
// not wait for that: the store may be slow.
func (l *Lead) CompareSlots() {
	if t := l.current.Load(); t != nil { // an instance that is not the owner does not know the runs well enough
		select {
		case t.compareSlots <- struct{}{}:
		default:
		}
	}
}

// runSlots compares runs and slots after each CompareSlots, until ctx ends. It reports the first of a
// series of failures.
func (l *Lead) runSlots(ctx context.Context, t *Leadership) {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.compareSlots:
		}
		err := l.compareSlots(ctx)
		if ctx.Err() == nil && err != nil && !failed {
			l.emit(event.Failed, "", "settle the slots of runs in flight: "+err.Error())
		}
		if failed && err == nil {
			l.opt.Cluster.Wake() // a run may have waited for a slot
		}
		failed = err != nil
	}
}
