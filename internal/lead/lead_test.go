package lead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

// A leadership has not ended while anything in it runs, not even the goroutine that bounds an action.
func TestLeadershipWaitsForWhatBoundsAnAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(10 * time.Second)
		claim := state.Claim{Until: func() time.Time { return until }}
		l := newLeadership(t.Context(), claim, suspend.StayAwake(func() time.Duration { return 0 }))
		var bounded context.Context
		assert.True(t, l.Spawn(func(context.Context) {
			bounded, _ = l.bound(context.Background(), false, until)
		}))
		l.end()
		assert.ErrorIs(t, bounded.Err(), context.Canceled)
		assert.False(t, time.Now().Before(until))
		assert.False(t, l.Spawn(func(context.Context) { t.Error("something began in a leadership that is over") }))
	})
}

// A process that was frozen past the end of its claim knows that at once, while nothing has ended what it does yet; a renewal moves the
// end. // I19
func TestBoundActionIsOverWithTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var lasts atomic.Int64 // the claim
		lasts.Store(int64(10 * time.Second))
		claim := state.Claim{Until: func() time.Time { return began.Add(time.Duration(lasts.Load())) }}
		l := newLeadership(t.Context(), claim, suspend.StayAwake(func() time.Duration { return 0 }))
		l.Go(func(context.Context) {
			bounded, cancel := l.bound(context.Background(), false, claim.Until())
			defer cancel()
			assert.NoError(t, bmc.Over(bounded, began.Add(10*time.Second-1)))
			assert.ErrorIs(t, bmc.Over(bounded, began.Add(10*time.Second)), context.DeadlineExceeded)
			assert.NoError(t, bounded.Err())
			lasts.Store(int64(20 * time.Second))
			time.Sleep(boundCheck + 1)
			assert.NoError(t, bmc.Over(bounded, began.Add(20*time.Second-1)))
			assert.ErrorIs(t, bmc.Over(bounded, began.Add(20*time.Second)), context.DeadlineExceeded)
		})
		l.end()
	})
}

// In a suspend the clock of a ctx stands still, so that tells nothing about it: what goes on after it is over at once all the same. // I1, I19
func TestBoundActionIsOverWithASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Int64
		until := time.Now().Add(time.Minute)
		claim := state.Claim{Until: func() time.Time { return until }}
		l := newLeadership(t.Context(), claim, suspend.StayAwake(func() time.Duration { return time.Duration(suspended.Load()) }))
		l.Go(func(context.Context) {
			bounded, cancel := l.bound(context.Background(), true, until)
			defer cancel()
			assert.NoError(t, bmc.Over(bounded, time.Now()))
			suspended.Store(int64(time.Hour))
			assert.NoError(t, bounded.Err(), "nothing has noticed it yet")
			assert.ErrorIs(t, bmc.Over(bounded, time.Now()), context.DeadlineExceeded)
		})
		l.end()
	})
}

// While another installation takes the Lease, it is never answered that there is no end. // I22
func TestLeaseStatusAlwaysHasAnEnd(t *testing.T) {
	var n leaseStatus
	var flip sync.WaitGroup
	done := make(chan struct{})
	flip.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			n.note(time.Now(), time.Hour, "", nil)
			n.note(time.Now(), 0, "another fenced", nil)
		}
	})
	endless := 0
	for range 300_000 {
		if end, _, why := n.known(time.Now()); why == "" && end.IsZero() {
			endless++
		}
	}
	close(done)
	flip.Wait()
	assert.Zero(t, endless)
}

// Others do not act for as long as the announcement binds them, counted from before the
// call. // I22
func TestLeaseStatusEndsWhenOthersMayAct(t *testing.T) {
	var n leaseStatus
	at := time.Now()
	n.note(at, 7*time.Second, "", nil)
	end, _, why := n.known(at.Add(7*time.Second - 1))
	assert.Equal(t, at.Add(7*time.Second), end)
	assert.Empty(t, why)
	_, _, why = n.known(at.Add(7 * time.Second))
	assert.NotEmpty(t, why)

	n.note(at, 0, "", nil) // binds nobody
	_, _, why = n.known(at)
	assert.NotEmpty(t, why)
}

// silent is a store whose calls fail after a while.
type silent struct{ state.Store }

func (silent) List(context.Context, state.Kind) ([]state.Record, error) {
	time.Sleep(6 * time.Second)
	return nil, errors.New("no answer")
}

// If the store does not answer, only one of all clusters waits for it: a run that starts would have
// to wait behind them.
func TestOnlyOneClusterWaitsForTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := NewSlots(func(string) {}), time.Now()
		var clusters sync.WaitGroup
		for range 4 {
			clusters.Go(func() { assert.ErrorContains(t, s.refresh(t.Context(), silent{}), "no answer") })
		}
		clusters.Wait()
		assert.Equal(t, 6*time.Second, time.Since(began))
		time.Sleep(slotsFresh)
		assert.Error(t, s.refresh(t.Context(), silent{}))
		assert.Equal(t, 12*time.Second+slotsFresh, time.Since(began), "then the store is asked again")
	})
}

// held is a store in memory for slots alone, which counts its lists.
type held struct {
	state.Store
	mu      sync.Mutex
	slots   []state.Record
	lists   int
	putting func() // called before each Put
}

func (h *held) List(context.Context, state.Kind) ([]state.Record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lists++
	return slices.Clone(h.slots), nil
}

func (h *held) Put(_ context.Context, r state.Record) (uint64, error) {
	h.putting()
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(h.slots, func(o state.Record) bool { return o.Key == r.Key }) {
		return 0, state.ErrExists
	}
	h.slots = append(h.slots, r)
	return 1, nil
}

func (h *held) Delete(_ context.Context, _ state.Kind, key string, _ uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots = slices.DeleteFunc(h.slots, func(o state.Record) bool { return o.Key == key })
	return nil
}

func leading(ctx context.Context, s state.Store) *Lead {
	l := New(Options{Name: "c", Slots: NewSlots(func(string) {})})
	l.current.Store(newLeadership(ctx, state.Claim{Store: s}, suspend.Awake{}))
	return l
}

// Runs that start while others take their slots take theirs together, within the limit. // I11
func TestSlotsAreTakenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &held{putting: func() { time.Sleep(time.Second) }}
		l := leading(t.Context(), store)
		var mu sync.Mutex
		has := 0
		var g sync.WaitGroup
		began := time.Now()
		for i := range 50 {
			g.Go(func() {
				ok, err := l.TakeSlot(t.Context(), 40, fmt.Sprint(i))
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				if ok {
					has++
				}
			})
			synctest.Wait() // the first one takes its slot while the others come
		}
		g.Wait()
		assert.Equal(t, 40, has)
		assert.Equal(t, 2*time.Second, time.Since(began), "that of the first, and those of all others")
		assert.Equal(t, 4, store.lists, "before and after each")
		assert.Equal(t, 40, l.opt.Slots.Count())
	})
}

// Who has gone takes no slot, and the others get theirs. // I11
func TestSlotOfARunThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &held{putting: func() { time.Sleep(time.Second) }}
		l := leading(t.Context(), store)
		first, leaveFirst := context.WithCancel(t.Context())
		gone, leave := context.WithCancel(t.Context())
		var g sync.WaitGroup
		g.Go(func() {
			ok, err := l.TakeSlot(first, 40, "first")
			assert.NoError(t, err)
			assert.True(t, ok, "who takes the slots for others finishes that")
		})
		synctest.Wait()
		g.Go(func() {
			_, err := l.TakeSlot(gone, 40, "gone")
			assert.ErrorIs(t, err, context.Canceled)
		})
		g.Go(func() {
			ok, err := l.TakeSlot(t.Context(), 40, "stays")
			assert.NoError(t, err)
			assert.True(t, ok)
		})
		synctest.Wait()
		leave()
		leaveFirst()
		g.Wait()
		assert.Equal(t, map[string]string{"first": "c", "stays": "c"}, l.opt.Slots.taken)
		assert.Len(t, store.slots, 2)
	})
}

// runs is a cluster that knows which runs are in flight.
type runs struct {
	Cluster
	mu       sync.Mutex
	inFlight []string
}

func (r *runs) add(run string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight = append(r.inFlight, run)
}

func (r *runs) SlotMismatches(taken map[string]bool) (lacking, needless []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.inFlight {
		if !taken[run] {
			lacking = append(lacking, run)
		}
	}
	for run := range taken {
		if !slices.Contains(r.inFlight, run) {
			needless = append(needless, run)
		}
	}
	return lacking, needless
}

// A run that waited, and whose slot was not freed yet, keeps that slot if it begins again before somebody frees it: else one run more than the
// limit could be in flight. // I11
func TestSlotOfARunThatBeginsAgainIsNotFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &held{putting: func() { time.Sleep(time.Second) }}
		l, c := leading(t.Context(), store), &runs{}
		l.opt.Cluster, l.opt.Store = c, store
		for _, run := range []string{"waits", "ended"} {
			ok, err := l.TakeSlot(t.Context(), 3, run)
			assert.NoError(t, err)
			assert.True(t, ok)
		}
		time.Sleep(slotsFresh)
		c.add("new") // its slot is taken first, which takes a while
		var g sync.WaitGroup
		g.Go(func() { assert.NoError(t, l.compareSlots(t.Context())) })
		synctest.Wait()
		c.add("waits")
		ok, err := l.TakeSlot(t.Context(), 3, "waits")
		assert.NoError(t, err)
		assert.True(t, ok)
		g.Wait()
		assert.Equal(t, map[string]string{"new": "c", "waits": "c"}, l.opt.Slots.taken)
		assert.Len(t, store.slots, 2)
	})
}

func TestNoSlotWithoutALeadership(t *testing.T) {
	l := New(Options{Name: "c", Slots: NewSlots(func(string) {})})
	_, err := l.TakeSlot(t.Context(), 40, "run")
	assert.ErrorIs(t, err, state.ErrNotOwner)
}
