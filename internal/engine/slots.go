package engine

import (
	"context"
	"errors"
	"sync"
	"time"

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
	io turn // one reader or writer of them at a time

	mu     sync.Mutex
	taken  map[string]string // run -> cluster
	loaded time.Time
}

func newSlots() *slots { return &slots{io: newTurn(), taken: map[string]string{}} }

func (s *slots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

// refresh reads the slots if that was not done a moment ago. What cannot be read
// leaves what was known: the store is asked again at the start of a run.
func (s *slots) refresh(ctx context.Context, store state.Store, now time.Time) error {
	s.io.lock()
	defer s.io.unlock()
	s.mu.Lock()
	fresh := now.Sub(s.loaded).Abs() < slotsFresh
	s.mu.Unlock()
	if fresh {
		return nil
	}
	list, err := state.LoadSlots(ctx, store)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = now
	clear(s.taken)
	for _, each := range list {
		s.taken[each.Run] = each.Cluster
	}
	return nil
}

func (s *slots) take(ctx context.Context, store state.Store, limit int, cluster, run string) (bool, error) {
	s.io.lock()
	defer s.io.unlock()
	ok, err := state.TakeSlot(ctx, store, limit, state.Slot{Cluster: cluster, Run: run})
	if err == nil && ok {
		s.mu.Lock()
		s.taken[run] = cluster
		s.mu.Unlock()
	}
	return ok, err
}

func (s *slots) free(ctx context.Context, store state.Store, run string) error {
	s.io.lock()
	defer s.io.unlock()
	err := state.FreeSlot(ctx, store, run)
	if err == nil {
		s.mu.Lock()
		delete(s.taken, run)
		s.mu.Unlock()
	}
	return err
}

// unsettled compares a cluster's runs in flight with its slots.
func (s *slots) unsettled(cluster string, inFlight map[string]bool) (lacking, needless []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for run := range inFlight {
		if _, has := s.taken[run]; !has {
			lacking = append(lacking, run)
		}
	}
	for run, of := range s.taken {
		if of == cluster && !inFlight[run] {
			needless = append(needless, run)
		}
	}
	return lacking, needless
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
// without: it is in flight, and counts.
func (c *cluster) settleSlots(ctx context.Context) error {
	err := c.e.slots.refresh(ctx, c.e.opt.Store, time.Now())
	c.mu.Lock()
	flying := map[string]bool{}
	for id, r := range c.runs {
		if inFlight(r) {
			flying[id] = true
		}
	}
	c.mu.Unlock()
	lacking, needless := c.e.slots.unsettled(c.opt.Name, flying)
	for _, run := range lacking {
		_, e := c.e.slots.take(ctx, c.store(), everySlot, c.opt.Name, run)
		err = errors.Join(err, e)
	}
	for _, run := range needless {
		err = errors.Join(err, c.e.slots.free(ctx, c.store(), run))
	}
	if len(needless) > 0 && err == nil {
		for _, each := range c.e.clusters { // the others may have waited for it
			if each != c {
				each.wake()
			}
		}
	}
	return err
}

// keepSlots settles the slots, as long as this instance owns the cluster, and tells
// when that fails.
func (c *cluster) keepSlots(ctx context.Context) {
	if c.tenure.Load() == nil { // its runs are not known well enough
		return
	}
	err := c.settleSlots(ctx)
	if ctx.Err() != nil || (err != nil) == c.slotsFailed {
		return
	}
	c.slotsFailed = err != nil
	if err != nil {
		c.emit(Event{Type: EventFailed, Message: "settle the slots of runs in flight: " + err.Error()})
	}
}
