package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

func pausedFor(d time.Duration) wire.Order {
	return wire.Order{Cluster: "c", Actor: "ada", Reason: "wait", For: wire.Span(d)}
}

// A clock that is ahead, of this host or of the API server, ends no pause. Otherwise the
// pause would end for every instance that shares the store. // I23
func TestFastClockEndsNoStop(t *testing.T) {
	for _, skew := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady("True")
			e, _, stop := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 2 * time.Minute })
			time.Sleep(time.Minute)
			_, err := e.Pause(t.Context(), pausedFor(10*time.Minute))
			require.NoError(t, err)
			hold := byHand
			hold.For = wire.Span(10 * time.Minute)
			_, err = e.Hold(t.Context(), hold)
			require.NoError(t, err)
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
			assert.Equal(t, skew < 0, firstRefusal(t, e) == reason.QuietPeriod, "it follows the end as it was, not as it was to be")
			stop()
		})
	}
}

// A stop that is given while the clocks differ is counted by the clock that is ahead:
// another instance, whose clock is right, may be the one that ends it. // I23
func TestStopGivenByAWrongClockLastsItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Minute)
		w.setSkew(2 * time.Hour)
		begun := time.Now().UTC()
		out, err := e.Pause(t.Context(), pausedFor(10*time.Minute))
		require.NoError(t, err)
		assert.Equal(t, begun.Add(2*time.Hour+10*time.Minute), out.Until)
		w.setSkew(-2 * time.Hour)
		hold := byHand
		hold.For = wire.Span(10 * time.Minute)
		out, err = e.Hold(t.Context(), hold)
		require.NoError(t, err)
		assert.Equal(t, begun.Add(10*time.Minute), out.Until, "this clock is the one that is ahead")
		stop()
	})
}

// Before a cluster was seen, it is not known whether this clock is right, so no stop
// ends. // I23
func TestNoStopEndsBeforeTheClusterIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Minute)
		_, err := e.Pause(t.Context(), pausedFor(10*time.Minute))
		require.NoError(t, err)
		stop()
		w.Do(func(s *fake.State) { s.Unsynced = true })
		e, _, stop = start(t, w, store, nil)
		time.Sleep(time.Hour)
		assert.NotEmpty(t, e.Status()[0].Paused)
		w.Do(func(s *fake.State) { s.Unsynced = false })
		time.Sleep(2 * time.Second)
		assert.Empty(t, e.Status()[0].Paused)
		stop()
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
		_, err := e.Hold(t.Context(), hold)
		require.NoError(t, err)
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
		e, _, stop = start(t, w, store, nil)
		time.Sleep(5 * time.Second)
		w.Do(func(s *fake.State) { s.Unsynced = false })
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
		stop()
	})
}

// firstRefusal is the reason of the first gate that forbids to fence n-1.
func firstRefusal(t *testing.T, e *engine.Engine) reason.Code {
	t.Helper()
	x, err := e.Explain(t.Context(), "c", "n-1")
	require.NoError(t, err)
	for _, g := range x.Gates {
		if !g.Pass {
			return g.Reason
		}
	}
	return ""
}
