package engine

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

const (
	everySlot  = 9999        // for a run that must have one, whatever the limit is
	slotsFresh = time.Second // how long what was read of them is good enough to refuse by
)

// slots are the places for runs in flight over all clusters, as last seen in the
// store. There one is taken or not; here they are only counted, for the gate and for
// explain. // I11
type slots struct {
	io *semaphore.Weighted // one reader or writer of them at a time

	mu     sync.Mutex
	taken  map[string]string // run -> cluster
	loaded time.Time         // also when that failed
	failed error             // then
}

func newSlots() *slots { return &slots{io: semaphore.NewWeighted(1), taken: map[string]string{}} }

func (s *slots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

// refresh reads the slots if that was not tried a moment ago: of all clusters one
// waits for a store that does not answer. What cannot be read leaves what was known.
// The store is asked again at the start of a run.
func (s *slots) refresh(ctx context.Context, store state.Store) error {
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

func (s *slots) take(ctx context.Context, store state.Store, limit int, cluster, run string) (bool, error) {
	if err := s.io.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer s.io.Release(1)
	ok, err := state.TakeSlot(ctx, store, limit, state.Slot{Cluster: cluster, Run: run})
	if err == nil && ok {
		s.mu.Lock()
		s.taken[run] = cluster
		s.mu.Unlock()
	}
	return ok, err
}

func (s *slots) free(ctx context.Context, store state.Store, run string) error {
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
func (s *slots) of(cluster string) map[string]bool {
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

// inFlight says whether a run holds a place: from its start until its Node has
// registered, or it is Held or has ended. // I11
func inFlight(r remediate.Run) bool {
	return r.Open() && r.Step != remediate.Held && r.Step != remediate.RestoreNode
}

// offInZone says whether a run's host is not known to be on: until then it counts in
// its zone.
func offInZone(r remediate.Run) bool { return inFlight(r) && r.Step != remediate.AwaitNode }

// settleSlots frees the slots of runs that need none any more, also of those that a
// crash left behind, and takes one, even above the limit, for each run that goes on
// without: it is in flight, and counts. The first error ends it, for the next call
// would wait as long for a store that does not answer.
func (c *cluster) settleSlots(ctx context.Context) error {
	if err := c.e.slots.refresh(ctx, c.e.opt.Store); err != nil {
		return err
	}
	taken := c.e.slots.of(c.opt.Name) // before the runs: one that is being begun is among those first
	lacking, needless := c.unsettled(taken)
	for _, run := range lacking {
		if _, err := c.e.slots.take(ctx, c.store(), everySlot, c.opt.Name, run); err != nil {
			return err
		}
	}
	for _, run := range needless {
		if err := c.e.slots.free(ctx, c.store(), run); err != nil {
			return err
		}
	}
	if len(needless) > 0 {
		for _, each := range c.e.clusters { // the others may have waited for it
			if each != c {
				each.wake()
			}
		}
	}
	return nil
}

// unsettled compares the cluster's runs in flight with its slots. A run that is not
// stored yet takes its slot by itself, or not at all. // I11
func (c *cluster) unsettled(taken map[string]bool) (lacking, needless []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.runs {
		if inFlight(r) && r.Version > 0 && !taken[id] {
			lacking = append(lacking, id)
		}
	}
	for id := range taken {
		if r, known := c.runs[id]; !known || !inFlight(r) {
			needless = append(needless, id)
		}
	}
	return lacking, needless
}

// settleSoon lets the slots be settled, as long as this instance owns the cluster. The
// deciding loop does not wait for it: the store may be slow.
func (c *cluster) settleSoon() {
	if t := c.leadership.Load(); t != nil { // else its runs are not known well enough
		select {
		case t.settle <- struct{}{}:
		default:
		}
	}
}

// keepSlots settles the slots whenever that is due, until ctx ends, and tells when it
// fails.
func (c *cluster) keepSlots(ctx context.Context, t *leadership) {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.settle:
		}
		err := c.settleSlots(ctx)
		if ctx.Err() == nil && err != nil && !failed {
			c.emit(event.Event{Type: event.Failed, Message: "settle the slots of runs in flight: " + err.Error()})
		}
		if failed && err == nil {
			c.wake() // what was waiting for a free one is asked again
		}
		failed = err != nil
	}
}
