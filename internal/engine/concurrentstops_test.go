package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
)

// lateList answers one list of holds late, with what stood there when it was asked.
type lateList struct {
	*failingStore
	late atomic.Bool
}

func (s *lateList) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	list, err := s.failingStore.List(ctx, kind)
	if kind == state.KindHold && s.late.CompareAndSwap(true, false) {
		time.Sleep(2 * time.Second)
	}
	return list, err
}

// A hold that is stored while holds are read again, because another instance wrote
// something, applies. // I23
func TestHoldDuringAReloadApplies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		late := &lateList{failingStore: store}
		e, _, stop := start(t, w, late, nil)
		time.Sleep(time.Second)
		late.late.Store(true)
		store.changed <- struct{}{}
		time.Sleep(time.Second)
		require.False(t, late.late.Load(), "the holds are being read")
		out, err := e.Hold(t.Context(), byHand)
		require.NoError(t, err)
		require.Empty(t, out.Unsaved)
		for range 10 { // before the next reload could mend it
			time.Sleep(500 * time.Millisecond)
			require.Len(t, e.Holds("c"), 1)
		}
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Hold).Value, "ada")
		stop()
	})
}

// A pause set at another instance is not shortened by one that is set here, even if this
// instance does not know the other one yet. // I23
func TestPauseOfAnotherInstanceIsNotShortened(t *testing.T) {
	for name, theirs := range map[string]time.Duration{"endless": 0, "longer": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, _, stop := start(t, w, store, nil)
				time.Sleep(time.Second)
				until := time.Time{}
				if theirs > 0 {
					until = time.Now().UTC().Add(theirs)
				}
				c := store.cluster(t, "c")
				c.Paused, c.PausedBy, c.PausedAt, c.PausedUntil = true, "bea", time.Now().UTC(), until
				_, err := statetest.SaveCluster(t.Context(), store, c)
				require.NoError(t, err)

				out, err := e.Pause(t.Context(), heldFor(time.Minute))
				require.NoError(t, err)
				assert.Equal(t, until, out.Until)
				assert.Equal(t, until, store.cluster(t, "c").PausedUntil)
				time.Sleep(90 * time.Minute)
				assert.Empty(t, e.Runs("c"))
				stop()
			})
		})
	}
}

// A quarantine does not change a person's hold that was set at another instance, even if
// this instance does not know it yet.
func TestQuarantineDoesNotReplaceAHoldOfAnotherInstance(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		defer relapsing(t, w)()
		e, _, stop := start(t, w, store, twiceADay)
		time.Sleep(3 * time.Minute)
		theirs, err := statetest.SaveHold(t.Context(), store, state.Hold{Cluster: "c", Node: "n-1", By: "bea", Reason: "disk", At: time.Now().UTC()})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.NotEmpty(t, e.Holds("c"))
		stop()
		holds, err := statetest.LoadHolds(t.Context(), store)
		require.NoError(t, err)
		assert.Contains(t, holds, theirs)
	})
}

// The end of a hold is reported even if a slow store delayed the check for it.
func TestEndOfAHoldIsReportedLate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		slow := &hangingPut{Store: store}
		e, events, stop := start(t, w, slow, nil)
		time.Sleep(time.Second)
		_, err := e.Hold(t.Context(), heldFor(13*time.Second))
		require.NoError(t, err)
		slow.hang.Store(true)
		other := heldFor(time.Hour)
		other.Node = "other-0"
		out, err := e.Hold(t.Context(), other)
		require.NoError(t, err)
		require.NotEmpty(t, out.Unsaved)
		time.Sleep(20 * time.Second)
		slow.hang.Store(false)
		time.Sleep(20 * time.Second)
		assert.Equal(t, 1, heard(t, events, "the hold by ada"))
		stop()
	})
}

// hangingPut is a store that does not answer writes while it is told to hang.
type hangingPut struct {
	state.Store
	hang atomic.Bool
}

func (s *hangingPut) Put(ctx context.Context, r state.Record) (uint64, error) {
	if s.hang.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.Store.Put(ctx, r)
}

// However many stops are given while the store hangs, each is answered in the time of one:
// none waits for the save of another. // I23
func TestStopsDoNotWaitForOneAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		slow := &hangingPut{Store: store}
		e, _, stop := start(t, w, slow, nil)
		time.Sleep(time.Second)
		slow.hang.Store(true)
		var given sync.WaitGroup
		for _, node := range []string{"n-1", "n-2", "n-3", "n-4", "n-5"} {
			given.Go(func() {
				began, o := time.Now(), byHand
				o.Node = node
				out, err := e.Hold(t.Context(), o)
				assert.NoError(t, err)
				assert.NotEmpty(t, out.Unsaved)
				assert.Less(t, time.Since(began), 6*time.Second)
			})
		}
		given.Go(func() {
			began := time.Now()
			out, err := e.Pause(t.Context(), byHand)
			assert.NoError(t, err)
			assert.NotEmpty(t, out.Unsaved)
			assert.Less(t, time.Since(began), 6*time.Second)
		})
		given.Wait()
		assert.Len(t, e.Holds("c"), 5)
		slow.hang.Store(false)
		time.Sleep(30 * time.Second)
		holds, err := statetest.LoadHolds(t.Context(), store)
		require.NoError(t, err)
		assert.Len(t, holds, 5)
		assert.True(t, store.cluster(t, "c").Paused)
		stop()
	})
}
