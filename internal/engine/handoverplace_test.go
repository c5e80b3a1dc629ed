package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// askedRecord is the only record in the store.
func askedRecord(t *testing.T, store state.Store) escalate.Record {
	t.Helper()
	list, err := state.LoadAsked(t.Context(), store)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// refusesToFence requires that not even a person fences the target.
func refusesToFence(t *testing.T, e *engine.Engine) {
	t.Helper()
	_, err := e.Fence(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "p", Reason: "r", Role: wire.Admin})
	refusal, is := reason.AsRefusal(err)
	require.True(t, is, "%v", err)
	assert.Equal(t, reason.UnderRemediation, refusal.Reason)
}

// Who is asked takes a slot of all clusters, and gives it up when it has worked for as long as a run
// may; its target stays blocked, also after a restart. // I11, I22
func TestAskedRemediatorHasASlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change := handingOver(w)
		limit := func(o *engine.Options) { change(o); o.Guards.MaxInFlightTotal = 1 }
		_, err := statetest.TakeSlot(t.Context(), store, 9, state.Slot{Cluster: "d", Run: "theirs"})
		require.NoError(t, err)
		e, _, stop := start(t, w, store, limit)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		gate(t, e, reason.TotalInFlight)
		require.NoError(t, statetest.FreeSlot(t.Context(), store, "theirs"))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		answer(w, "True")
		time.Sleep(time.Hour)
		assert.Equal(t, []string{askedRecord(t, store).ID}, slotsOf(t, store))
		time.Sleep(time.Hour + time.Minute)
		assert.Empty(t, slotsOf(t, store))
		refusesToFence(t, e)
		stop()
		e, _, stop = start(t, w, store, limit)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, slotsOf(t, store))
		require.Len(t, others(w), 1)
		refusesToFence(t, e)
		assert.Empty(t, w.Commands())
		stop()
	})
}

// What waits for a person, or what nobody carries out, has no slot. // I11
func TestRecordThatStandsStillHasNoSlot(t *testing.T) {
	for name, change := range map[string]func(*world) func(*engine.Options){
		"nobody carries it out": handingOver,
		"it does not stop":      func(w *world) func(*engine.Options) { return escalating(w, otherTemplate, thirdTemplate) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, _, stop := start(t, w, store, change(w))
				awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
				assert.Len(t, slotsOf(t, store), 1)
				if name == "it does not stop" {
					answer(w, "True")
				}
				time.Sleep(10 * time.Minute)
				assert.Empty(t, slotsOf(t, store))
				require.Len(t, others(w), 1)
				assert.False(t, askedRecord(t, store).Idle.IsZero())
				refusesToFence(t, e)
				stop()
			})
		})
	}
}

// A remediator that was just told to stop, or whose object was just deleted, still works on its host: it
// keeps its slot until it has stopped, or for a few minutes. // I11
func TestRemediatorThatMustStopHasASlot(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world) func(*engine.Options)
		stops  func(*world)
	}{
		"its time is over": {func(w *world) func(*engine.Options) { return escalating(w, otherTemplate, thirdTemplate) }, func(*world) {}},
		"somebody deletes its object": {handingOver, func(w *world) {
			q := others(w)[0]
			q.Deleting = true
			w.Do(func(s *fake.State) { s.PutOther(&q) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				_, _, stop := start(t, w, store, c.change(w))
				awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
				answer(w, "True")
				c.stops(w)
				awaitAsked(t, w, "it must stop", func() bool { return others(w)[0].Deleting || !others(w)[0].TimedOut.IsZero() })
				for range 30 {
					time.Sleep(time.Second)
					require.Equal(t, []string{askedRecord(t, store).ID}, slotsOf(t, store))
				}
				time.Sleep(escalate.IgnoredAfter)
				assert.Empty(t, slotsOf(t, store))
				require.Len(t, others(w), 1)
				stop()
			})
		})
	}
}

// The next object of an escalation has its place again. // I11
func TestNextRemediatorHasASlotAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, store, escalating(w, otherTemplate, thirdTemplate))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		answer(w, "True")
		time.Sleep(10 * time.Minute)
		require.Empty(t, slotsOf(t, store))
		answer(w, "False")
		awaitAsked(t, w, "the second is asked", func() bool { return len(others(w)) == 1 && others(w)[0].Kind == "Replace" })
		time.Sleep(2 * time.Second)
		r := askedRecord(t, store)
		assert.Len(t, r.Objects, 2)
		assert.Equal(t, []string{r.ID}, slotsOf(t, store))
		w.Recover()
		time.Sleep(10 * time.Minute)
		assert.True(t, askedRecord(t, store).Recovered)
		assert.Empty(t, slotsOf(t, store))
		stop()
	})
}
