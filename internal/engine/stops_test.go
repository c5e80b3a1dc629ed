package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// A stop that is given while neither the API nor the store answers applies within a
// second, and nothing is isolated at the moment when both return. // I23
func TestPauseAppliesWithinASecondWithAPIAndStoreDown(t *testing.T) {
	for name, stopNow := range stopBy {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "paused")
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e := running(t, w, store, func(o *engine.Options) { slowProof(o); o.PauseFile = file })
				allDown(t, w, store)
				assert.NotEmpty(t, stopNow(t, e, file).Unsaved)
				time.Sleep(time.Second)
				if name != "hold" {
					assert.NotEmpty(t, e.Status()[0].Paused)
				}
				time.Sleep(10 * time.Second) // the host would be proven off by now
				allBack(w, store)
				time.Sleep(5 * time.Minute)
				stands(t, e, remediate.Aborted, "Paused")
				assert.Zero(t, w.Isolations())
				assert.Equal(t, 1, w.Count(bmc.CommandOff))
				assert.True(t, w.On())
			})
		})
	}
}

// The same outage without a stop isolates the Node: the test above shows the effect of the
// stop.
func TestRunEndsAfterAPIAndStoreWereDown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, slowProof)
		allDown(t, w, store)
		time.Sleep(11 * time.Second)
		allBack(w, store)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
	})
}

// With both down permanently, a host that is off needs only the store to be powered on:
// without a record there is no command. // I19, I20
func TestPausedHostComesBackWithTheStoreAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paused")
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) { slowProof(o); o.PauseFile = file })
		allDown(t, w, store)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		time.Sleep(time.Minute)
		require.Zero(t, w.Count(bmc.CommandOn))
		store.set(false)
		time.Sleep(30 * time.Second)
		assert.True(t, w.On(), "the API is not needed for that")
		assert.Zero(t, w.Isolations())
		assert.True(t, only(t, e).Open())
	})
}

// allDown takes API and store away when the host is off and not yet proven off.
func allDown(t *testing.T, w *world, store *failingStore) {
	t.Helper()
	time.Sleep(75 * time.Second)
	require.Equal(t, 1, w.Count(bmc.CommandOff))
	require.Zero(t, w.Isolations())
	w.takeAPIDown()
	store.set(true)
}

func allBack(w *world, store *failingStore) {
	w.bringAPIUp()
	store.set(false)
}

func pausedFor(d time.Duration) wire.Order {
	return wire.Order{Cluster: "c", Actor: "ada", Reason: "wait", For: wire.Span(d)}
}

// A clock that is ahead, of this host or of the API server, ends no pause. Otherwise the
// pause would end for every instance that shares the store. // I23
func TestFastClockEndsNoStop(t *testing.T) {
	for _, skew := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady("True")
			e := running(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 2 * time.Minute })
			time.Sleep(time.Minute)
			accepted(t)(e.Pause(t.Context(), pausedFor(10*time.Minute)))
			accepted(t)(e.Hold(t.Context(), heldFor(10*time.Minute)))
			w.setSkew(skew)
			time.Sleep(9 * time.Minute)
			assert.NotEmpty(t, e.Status()[0].Paused)
			time.Sleep(10 * time.Minute)
			// -2h: this clock says that it is over, the API server's does not.
			assert.Equal(t, skew < 0, e.Status()[0].Paused != "", "%s", skew)
			assert.Equal(t, skew < 0, len(e.Holds("c")) == 1, "%s", skew)
			w.setSkew(0)
			time.Sleep(2 * time.Second)
			assert.Empty(t, e.Status()[0].Paused)
			assert.Empty(t, e.Holds("c"))
			w.SetReadySince("Unknown", time.Now().Add(-time.Hour))
			time.Sleep(time.Second)
			assert.Equal(t, skew < 0, firstRefusal(explained(t, e)).Reason == reason.QuietPeriod, "it follows the end as it was, not as it was to be")
		})
	}
}

// A stop that is given while the clocks differ is counted by the clock that is ahead:
// another instance, whose clock is right, may be the one that ends it. // I23
func TestStopGivenByAWrongClockLastsItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e := running(t, w, store, nil)
		time.Sleep(time.Minute)
		w.setSkew(2 * time.Hour)
		begun := time.Now().UTC()
		out := accepted(t)(e.Pause(t.Context(), pausedFor(10*time.Minute)))
		assert.Equal(t, begun.Add(2*time.Hour+10*time.Minute), out.Until)
		w.setSkew(-2 * time.Hour)
		out = accepted(t)(e.Hold(t.Context(), heldFor(10*time.Minute)))
		assert.Equal(t, begun.Add(10*time.Minute), out.Until, "this clock is the one that is ahead")
	})
}

// Before a cluster was seen, it is not known whether this clock is right, so no stop
// ends. // I23
func TestNoStopEndsBeforeTheClusterIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Minute)
		accepted(t)(e.Pause(t.Context(), pausedFor(10*time.Minute)))
		stop()
		w.Do(func(s *fake.State) { s.Unsynced = true })
		e = running(t, w, store, nil)
		time.Sleep(time.Hour)
		assert.NotEmpty(t, e.Status()[0].Paused)
		w.Do(func(s *fake.State) { s.Unsynced = false })
		time.Sleep(2 * time.Second)
		assert.Empty(t, e.Status()[0].Paused)
	})
}

// A hold that has expired stays expired: it does not return while a restarted fenced has
// not seen the cluster, nor when a clock goes back. // I20, I23
func TestExpiredHoldStaysExpired(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, events, stop := start(t, w, store, nil)
		time.Sleep(time.Minute)
		hold := byHand
		hold.For = wire.Span(time.Minute)
		accepted(t)(e.Hold(t.Context(), hold))
		time.Sleep(3 * time.Minute)
		w.setSkew(-2 * time.Hour)
		time.Sleep(time.Minute)
		assert.Empty(t, e.Holds("c"))
		w.setSkew(0)
		time.Sleep(time.Minute)
		assert.Equal(t, 1, heard(t, events, "the hold by "+hold.Actor))
		w.Hang()
		until(t, e, remediate.AwaitNode)
		stop()
		w.Do(func(s *fake.State) { s.Unsynced = true })
		e = running(t, w, store, nil)
		time.Sleep(5 * time.Second)
		w.Do(func(s *fake.State) { s.Unsynced = false })
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Done)
	})
}

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
		e := running(t, w, late, nil)
		time.Sleep(time.Second)
		late.late.Store(true)
		store.changed <- struct{}{}
		time.Sleep(time.Second)
		require.False(t, late.late.Load(), "the holds are being read")
		require.Empty(t, accepted(t)(e.Hold(t.Context(), byHand)).Unsaved)
		for range 10 { // before the next reload could mend it
			time.Sleep(500 * time.Millisecond)
			require.Len(t, e.Holds("c"), 1)
		}
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Hold).Value, "ada")
	})
}

// A pause set at another instance is not shortened by one that is set here, even if this
// instance does not know the other one yet. // I23
func TestPauseOfAnotherInstanceIsNotShortened(t *testing.T) {
	for name, theirs := range map[string]time.Duration{"endless": 0, "longer": 2 * time.Hour} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			e := running(t, w, store, nil)
			time.Sleep(time.Second)
			until := time.Time{}
			if theirs > 0 {
				until = time.Now().UTC().Add(theirs)
			}
			c := store.cluster(t, "c")
			c.Paused, c.PausedBy, c.PausedAt, c.PausedUntil = true, "bea", time.Now().UTC(), until
			must.Do(statetest.SaveCluster(t.Context(), store, c))(t)

			assert.Equal(t, until, accepted(t)(e.Pause(t.Context(), heldFor(time.Minute))).Until)
			assert.Equal(t, until, store.cluster(t, "c").PausedUntil)
			time.Sleep(90 * time.Minute)
			assert.Empty(t, e.Runs("c"))
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
		theirs := must.Do(statetest.SaveHold(t.Context(), store, state.Hold{Cluster: "c", Node: "n-1", By: "bea", Reason: "disk", At: time.Now().UTC()}))(t)
		time.Sleep(time.Hour)
		assert.NotEmpty(t, e.Holds("c"))
		stop()
		assert.Contains(t, must.Do(statetest.LoadHolds(t.Context(), store))(t), theirs)
	})
}

// The end of a hold is reported even if a slow store delayed the check for it.
func TestEndOfAHoldIsReportedLate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		slow := &hangingPut{Store: store}
		e, events, _ := start(t, w, slow, nil)
		time.Sleep(time.Second)
		accepted(t)(e.Hold(t.Context(), heldFor(13*time.Second)))
		slow.hang.Store(true)
		other := heldFor(time.Hour)
		other.Node = "other-0"
		require.NotEmpty(t, accepted(t)(e.Hold(t.Context(), other)).Unsaved)
		time.Sleep(20 * time.Second)
		slow.hang.Store(false)
		time.Sleep(20 * time.Second)
		assert.Equal(t, 1, heard(t, events, "the hold by ada"))
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
		e := running(t, w, slow, nil)
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
		assert.Len(t, must.Do(statetest.LoadHolds(t.Context(), store))(t), 5)
		assert.True(t, store.cluster(t, "c").Paused)
	})
}
