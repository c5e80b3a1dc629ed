package engine_test

import (
	"context"
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
)

func slotsOf(t *testing.T, store state.Store) (runs []string) {
	t.Helper()
	list, err := state.LoadSlots(t.Context(), store)
	require.NoError(t, err)
	for _, s := range list {
		runs = append(runs, s.Run)
	}
	return runs
}

// slow is the world where labels come back a while after the Node.
type slow struct {
	engine.Kube
	since atomic.Int64 // when it was first tried, in Unix nanoseconds; zero: not yet
}

func (s *slow) Restore(ctx context.Context, r remediate.Run, backups [][]byte) ([]string, error) {
	s.since.CompareAndSwap(0, time.Now().UnixNano())
	if time.Since(time.Unix(0, s.since.Load())) < 20*time.Second {
		return nil, fake.ErrAPI
	}
	return s.Kube.Restore(ctx, r, backups)
}

// A run has a slot from its start until its Node has registered. // I11
func TestSlotIsHeldUntilRegistration(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = &slow{Kube: w} })
		var held, free int
		var registered time.Time
		for range 5 * 60 {
			time.Sleep(time.Second)
			if len(e.Runs("c")) == 0 {
				require.Empty(t, slotsOf(t, store))
				continue
			}
			switch r, slots := only(t, e), slotsOf(t, store); r.Step {
			case remediate.PowerOff, remediate.DeleteNode, remediate.PowerOn, remediate.AwaitNode:
				held++
				assert.Equal(t, []string{r.ID}, slots, "in %s", r.Step)
			case remediate.RestoreNode:
				if registered.IsZero() {
					registered = time.Now()
				}
				if time.Since(registered) > 2*time.Second {
					free++
					assert.Empty(t, slots)
				}
			case remediate.Done:
				assert.Empty(t, slots)
			}
		}
		assert.Positive(t, held)
		assert.Positive(t, free)
		stop()
	})
}

// A Held run does not keep a slot from other runs. // I11
func TestHeldRunHasNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Guards.MaxInFlight, o.Guards.MaxInFlightTotal = 1, 1 })
		time.Sleep(70 * time.Second)
		require.Equal(t, remediate.PowerOff, only(t, e).Step)
		require.Len(t, slotsOf(t, store), 1)
		time.Sleep(2 * time.Minute)
		require.Equal(t, remediate.Held, only(t, e).Step)
		assert.Empty(t, slotsOf(t, store))
		stop()
	})
}

// At the start, slots left over from a crash are freed, a run that lost its slot gets one
// again, even above the limit, and slots of clusters that other instances own stay. // I11
func TestSlotsAreCorrectedAtTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		limit := func(o *engine.Options) { o.Guards.MaxInFlightTotal = 1 }
		e, _, stop := start(t, w, store, limit)
		time.Sleep(70 * time.Second)
		stop()
		id := only(t, e).ID
		require.NoError(t, statetest.FreeSlot(t.Context(), store, id))
		for cluster, run := range map[string]string{"c": "crashed-before-it-was-saved", "other": "r9"} {
			_, err := statetest.TakeSlot(t.Context(), store, 9, state.Slot{Cluster: cluster, Run: run})
			require.NoError(t, err)
		}
		_, _, stop = start(t, w, store, limit)
		time.Sleep(2 * time.Second)
		assert.ElementsMatch(t, []string{id, "r9"}, slotsOf(t, store))
		stop()
	})
}

// Another instance may take the last slot after the gate was evaluated: the store decides.
func TestLastSlotIsTakenInTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("a", 4, "")
		f.fail(1)
		var meddled atomic.Bool
		meddles := onDecision(func(node string) {
			if !meddled.Load() && f.Handle(node).Reads() > 0 {
				meddled.Store(true) // the probe is done, the gate is asked
				_, err := statetest.TakeSlot(t.Context(), store, 1, state.Slot{Cluster: "elsewhere", Run: "theirs"})
				assert.NoError(t, err)
			}
		})
		e, events, stop := fleets{f}.guard(t, store, func(o *engine.Options) { meddles(o); o.Guards.MaxInFlightTotal = 1 })
		time.Sleep(time.Minute)
		require.True(t, meddled.Load())
		require.Empty(t, e.Runs("a"))
		require.Contains(t, refusals(t, events), string(reason.TotalInFlight))
		x, err := e.Explain(t.Context(), "a", "a-000")
		require.NoError(t, err)
		require.True(t, refusing(x.Gates, reason.TotalInFlight), "explain counts the others', too: %+v", x.Gates)

		out, err := e.Fence(t.Context(), wire.Order{Cluster: "a", Node: "a-001", Actor: "ada", Reason: "smoke"})
		require.NoError(t, err, "a person does not wait for a slot")
		assert.ElementsMatch(t, []string{"theirs", out.Run}, slotsOf(t, store), "but the run has one")
		time.Sleep(5 * time.Minute)
		require.Len(t, e.Runs("a"), 1)

		require.NoError(t, statetest.FreeSlot(t.Context(), store, "theirs"))
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("a"), 2)
		assert.Zero(t, f.NotReady())
		stop()
	})
}

func refusing(gates []reason.Gate, code reason.Code) bool {
	for _, g := range gates {
		if g.Reason == code {
			return true
		}
	}
	return false
}

// Without the store there is no slot, and without a slot no run starts.
func TestNoSlotWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(30 * time.Second)
		store.set(true)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Zero(t, w.Count(bmc.CommandOff))
		store.set(false)
		assert.Empty(t, slotsOf(t, store))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}
