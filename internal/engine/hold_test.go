package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/stop"
	"github.com/fenced/fenced/internal/wire"
)

func (s *failingStore) cluster(t *testing.T, name string) state.Cluster {
	t.Helper()
	c, err := statetest.LoadCluster(t.Context(), s, name)
	require.NoError(t, err)
	return c
}

func heldFor(length time.Duration) wire.Order {
	o := byHand
	o.For = wire.Span(length)
	return o
}

// A hold prevents fencing of one Node until it expires, also across a restart.
func TestHoldExpires(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		out, err := e.Hold(t.Context(), heldFor(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, order.Outcome{Until: time.Now().UTC().Add(time.Hour)}, out)
		out, err = e.Hold(t.Context(), heldFor(time.Minute))
		require.NoError(t, err)
		assert.Equal(t, time.Now().UTC().Add(time.Hour), out.Until, "a hold that stands is not shortened")
		time.Sleep(30 * time.Minute)
		stop()

		e, events, stop := start(t, w, store, nil)
		time.Sleep(29 * time.Minute)
		require.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Hold).Value, "ada")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, heard(t, events, "the hold by ada"))
		assert.Empty(t, e.Holds("c"))
		stop()
	})
}

// Names that do not exist fill no store, and keep nobody from holding a Node that exists.
func TestHoldsOfNodesThatDoNotExistAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		hold := func(name string) error {
			o := byHand
			if o.Node = name; strings.Contains(name, "/") {
				o.Node, o.Machine = "", name
			}
			_, err := e.Hold(t.Context(), o)
			return err
		}
		release := func(name string) {
			o := byHand
			o.Node = name
			_, err := e.ReleaseHold(t.Context(), o)
			require.NoError(t, err)
		}
		stored := func() int {
			list, err := store.List(t.Context(), state.KindHold)
			require.NoError(t, err)
			return len(list)
		}
		for i := range manyHolds {
			require.NoError(t, hold(fmt.Sprint("no-", i)))
		}
		for range 3 { // as one who holds and releases for days
			refusedFor(t, hold("typo"), reason.TooManyHolds)
			refusedFor(t, hold("ns/typo"), reason.TooManyHolds)
		}
		require.Equal(t, manyHolds, stored())
		require.NoError(t, hold("no-7"), "it is held already")
		require.NoError(t, hold("n-1"), "a Node that exists can always be held")
		require.NoError(t, hold("ns/m-1"))
		for i := range 10 {
			release(fmt.Sprint("no-", i))
		}
		for i := range 10 {
			require.NoError(t, hold(fmt.Sprint("other-", i+10)))
		}
		assert.Equal(t, manyHolds+2, stored(), "the holds that have ended made room")
		refusedFor(t, hold("typo"), reason.TooManyHolds)
		stop()
	})
}

const manyHolds = stop.MaxUnseenHolds

func TestHoldBindsPeopleAndIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		_, err := e.ReleaseHold(t.Context(), byHand)
		refusedFor(t, err, reason.NoHold)
		_, err = e.Hold(t.Context(), heldFor(0))
		require.NoError(t, err)
		refusedByHand(t, e, reason.Hold)
		other := byHand
		other.Node = "other-0"
		out, err := e.Hold(t.Context(), other)
		require.NoError(t, err)
		assert.False(t, out.Unseen)
		other.Node = "typo"
		out, err = e.Hold(t.Context(), other)
		require.NoError(t, err, "a stop is always allowed")
		assert.True(t, out.Unseen)

		_, err = e.ReleaseHold(t.Context(), byHand)
		require.NoError(t, err)
		_, err = e.ReleaseHold(t.Context(), byHand)
		refusedFor(t, err, reason.NoHold)
		_, err = e.Fence(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}

// After the isolation a held host is still brought back. // I20
func TestHoldAfterTheIsolationLeavesNoHostOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		for w.Isolations() == 0 {
			time.Sleep(time.Second)
		}
		_, err := e.Hold(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Count(bmc.CommandOn))
		stop()
	})
}

// Holds and pauses that people set at another instance apply here, too.
func TestStopsOfAnotherInstanceApply(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		held, err := statetest.SaveHold(t.Context(), store, state.Hold{Cluster: "c", Node: "n-1", By: "bea", Reason: "disk", At: time.Now()})
		require.NoError(t, err)
		store.syncChanges()
		require.Len(t, e.Holds("c"), 1)
		held.Reason = "disk and fan"
		_, err = statetest.SaveHold(t.Context(), store, held)
		require.NoError(t, err)
		_, err = e.ReleaseHold(t.Context(), byHand) // on a version that is not the newest any more
		require.NoError(t, err)
		store.syncChanges()
		require.Empty(t, e.Holds("c"))

		c := store.cluster(t, "c")
		c.Paused, c.PausedBy = true, "bea"
		_, err = statetest.SaveCluster(t.Context(), store, c)
		require.NoError(t, err)
		store.syncChanges()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Paused).Value, "bea")
		stop()
	})
}

// A quarantine does not stop people, and is separate from a person's hold: releasing the
// hold does not end the quarantine. // I15
func TestQuarantineAndHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		until := time.Now().UTC().Add(24 * time.Hour)
		_, err := statetest.SaveHold(t.Context(), store, state.Hold{Cluster: "c", Node: "n-1", By: "fenced", Reason: "restless", Quarantine: true, At: time.Now(), Until: until})
		require.NoError(t, err)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		_, err = e.Fence(t.Context(), dryRun(byHand))
		require.NoError(t, err)
		out, err := e.Hold(t.Context(), heldFor(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, order.Outcome{Until: time.Now().UTC().Add(time.Hour)}, out)
		refusedByHand(t, e, reason.Hold)
		holds := e.Holds("c")
		require.Len(t, holds, 2)
		assert.Equal(t, []bool{false, true}, []bool{holds[0].Quarantine, holds[1].Quarantine})

		out, err = e.ReleaseHold(t.Context(), byHand)
		require.NoError(t, err)
		assert.False(t, out.Quarantine)
		assert.Contains(t, out.Still, "in quarantine until "+until.Format(time.RFC3339))
		holds = e.Holds("c")
		require.Len(t, holds, 1)
		assert.True(t, holds[0].Quarantine)
		assert.Equal(t, until, holds[0].Until)

		out, err = e.ReleaseHold(t.Context(), byHand)
		require.NoError(t, err)
		assert.Equal(t, order.Outcome{Quarantine: true}, out)
		assert.Empty(t, e.Holds("c"))
		_, err = e.ReleaseHold(t.Context(), byHand)
		refusedFor(t, err, reason.NoHold)
		stop()
	})
}

// A second hold or pause that does not last longer leaves the name and reason of the
// first. One that lasts longer replaces it. // I23
func TestLongerStopKeepsItsActor(t *testing.T) {
	for name, c := range map[string]struct {
		give func(*engine.Engine, context.Context, wire.Order) (order.Outcome, error)
		why  func(*engine.Engine) string
	}{
		"hold": {
			(*engine.Engine).Hold,
			func(e *engine.Engine) string { return e.Holds("c")[0].By + ": " + e.Holds("c")[0].Reason },
		},
		"pause": {
			(*engine.Engine).Pause,
			func(e *engine.Engine) string { return e.Status()[0].Paused },
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, _, stop := start(t, w, store, nil)
				time.Sleep(time.Second)
				first, second := heldFor(time.Hour), heldFor(time.Minute)
				second.Actor, second.Reason = "bea", "fan"
				out, err := c.give(e, t.Context(), first)
				require.NoError(t, err)
				assert.Empty(t, out.Earlier)
				until := out.Until
				out, err = c.give(e, t.Context(), second)
				require.NoError(t, err)
				assert.Equal(t, until, out.Until)
				assert.Equal(t, first.Actor+": "+first.Reason, out.Earlier)
				assert.Contains(t, c.why(e), first.Reason)
				second.For = wire.Span(2 * time.Hour)
				out, err = c.give(e, t.Context(), second)
				require.NoError(t, err)
				assert.Empty(t, out.Earlier)
				assert.Contains(t, c.why(e), "bea")
				assert.Contains(t, c.why(e), "fan")
				stop()
			})
		})
	}
}

// Resuming all clusters leaves the pause of one cluster, and the reverse. The answer says
// which pause remains, and how to end it. // I23
func TestResumeSaysHowTheOtherPauseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		all, one := heldFor(0), heldFor(0)
		all.Cluster, all.Node, one.Node = state.AllClusters, "", ""
		for _, o := range []wire.Order{all, one} {
			_, err := e.Pause(t.Context(), o)
			require.NoError(t, err)
		}
		out, err := e.Resume(t.Context(), one)
		require.NoError(t, err)
		assert.Contains(t, out.Still, "everything is paused by ada")
		assert.Contains(t, out.Still, "(that ends without --cluster)")
		_, err = e.Pause(t.Context(), one)
		require.NoError(t, err)
		out, err = e.Resume(t.Context(), all)
		require.NoError(t, err)
		assert.Contains(t, out.Still, "cluster c is paused by ada")
		assert.Contains(t, out.Still, "(that ends with --cluster c)")
		stop()
	})
}
