package lead

import (
	"context"
	"slices"
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

// slotRequest is a run that waits for its slot.
type slotRequest struct {
	run    string
	limit  int
	done   bool
	result state.SlotResult
}

// slotQueue holds the runs of one leadership that wait for their slots. Whoever is next to use the
// slots takes those of all that wait, so that the store can make them durable together.
type slotQueue struct {
	mu      sync.Mutex
	waiting []*slotRequest
}

// remove withdraws a request. It returns false if somebody is already taking its slot.
func (q *slotQueue) remove(r *slotRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// TakeSlot takes a slot for a run of the cluster if fewer than limit are taken. ok reports whether
// the run has one. After an error it may have one. // I11
func (l *Lead) TakeSlot(ctx context.Context, limit int, run string) (ok bool, err error) {
	t := l.current.Load()
	if t == nil {
		return false, state.ErrNotOwner
	}
	r := &slotRequest{run: run, limit: limit}
	t.slots.mu.Lock()
	t.slots.waiting = append(t.slots.waiting, r)
	t.slots.mu.Unlock()
	s := l.opt.Slots
	if err := s.io.Acquire(ctx, 1); err != nil {
		t.slots.remove(r)
		return false, err
	}
	defer s.io.Release(1)
	if !r.done { // nobody has taken it with others
		s.take(t.ctx, t.claim.Store, l.opt.Name, &t.slots) // not ctx, which may end with the order of one person
	}
	return r.result.Has, r.result.Err
}

// take takes the slots of all runs of one cluster that wait. The caller holds io.
func (s *Slots) take(ctx context.Context, store state.Store, cluster string, q *slotQueue) {
	q.mu.Lock()
	list := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	asked := make([]state.SlotRequest, len(list))
	for i, r := range list {
		asked[i] = state.SlotRequest{Holder: state.Slot{Cluster: cluster, Run: r.run}, Limit: r.limit}
	}
	results := state.TakeSlots(ctx, store, asked)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range list {
		if r.done, r.result = true, results[i]; r.result.Has {
			s.taken[r.run] = cluster
		}
	}
}

// takenBy returns the runs of a cluster that have slots.
func (s *Slots) takenBy(cluster string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := map[string]bool{}
	for run, of := range s.taken {
		if of == cluster {
			taken[run] = true
		}
	}
	return taken
}

// free frees the slots of the runs that needless returns, and returns how many of these have none now. It calls needless when nobody
// can take a slot any more: a run that begins again meanwhile would keep the one that is freed. // I11
func (s *Slots) free(ctx context.Context, store state.Store, needless func() []string) (int, error) {
	if err := s.io.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	defer s.io.Release(1)
	freed, err := state.FreeSlots(ctx, store, needless())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, run := range freed {
		delete(s.taken, run)
	}
	return len(freed), err
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
	lacking, needless := l.opt.Cluster.SlotMismatches(s.takenBy(l.opt.Name))
	for _, run := range lacking {
		if _, err := l.TakeSlot(ctx, EverySlot, run); err != nil {
			return err
		}
	}
	if len(needless) == 0 {
		return nil
	}
	n, err := s.free(ctx, l.Store(), func() []string {
		_, needless := l.opt.Cluster.SlotMismatches(s.takenBy(l.opt.Name))
		return needless
	})
	if n > 0 {
		s.freed(l.opt.Name)
	}
	return err
}

// SettleSlots compares runs and slots at once, if this instance owns the cluster. Without an error, no
// slot is left of a run that has ended.
func (l *Lead) SettleSlots(ctx context.Context) error {
	if !l.Leads() {
		return nil
	}
	return l.compareSlots(ctx)
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
