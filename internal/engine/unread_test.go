package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// spoiled are the records of what is forbidden, each of which may be damaged.
var spoiled = map[string]state.Record{
	"hold":                 {Kind: state.KindHold, Key: "c/other-1"},
	"freeze":               {Kind: state.KindFreeze, Key: "r-1"},
	"pause of a cluster":   {Kind: state.KindCluster, Key: "c"},
	"pause of another one": {Kind: state.KindCluster, Key: "elsewhere"},
	"pause of everything":  {Kind: state.KindCluster, Key: "*"},
}

// spoil writes a record that nobody can read.
func spoil(t *testing.T, s state.Store, r state.Record) {
	t.Helper()
	if old, err := s.Get(t.Context(), r.Kind, r.Key); err == nil {
		r.Version = old.Version
	}
	r.Data = []byte(`{"v":1,"data":{"from":"a bad disk"}}`)
	_, err := s.Put(t.Context(), r)
	require.NoError(t, err)
}

// alarms counts what failed in no run, of a wording.
func alarms(t *testing.T, events *event.Stream, words string) int {
	t.Helper()
	return len(eventsOf(t, events, func(ev event.Event) bool {
		return ev.Type == event.Failed && ev.Node == "" && strings.Contains(ev.Message, words)
	}))
}

// Stops that cannot be read forbid everything, and keep no host off: a run before the
// isolation is rolled back, and an isolated host is brought back. // I20, I23
func TestUnreadableStopsStopAndBringBack(t *testing.T) {
	for name, record := range spoiled {
		for isolated, end := range map[bool]remediate.Step{false: remediate.Aborted, true: remediate.Done} {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				_, _, stop := start(t, w, store, nil)
				for w.Count(bmc.CommandOff) == 0 || isolated && w.Isolations() == 0 {
					time.Sleep(500 * time.Millisecond)
				}
				stop()
				spoil(t, store, record)

				e, events, stop := start(t, w, store, nil)
				time.Sleep(10 * time.Minute)
				assert.Equal(t, end, only(t, e).Step, "%s, isolated: %t", name, isolated)
				assert.True(t, w.On(), name)
				assert.Equal(t, 1, w.Count(bmc.CommandOff), name)
				assert.Contains(t, gate(t, e, reason.Paused).Value, "cannot be read", name)
				assert.Contains(t, e.Status()[0].Paused, "cannot be read", name)
				assert.Equal(t, 1, alarms(t, events, "cannot be read"), "told once: %s", name)
				_, err := e.Fence(t.Context(), byHand)
				require.Error(t, err, name)
				_, err = e.Pause(t.Context(), byHand)
				require.NoError(t, err, "a stop is always allowed")
				bad, err := store.Get(t.Context(), record.Kind, record.Key)
				require.NoError(t, err)
				assert.Contains(t, string(bad.Data), "a bad disk", "it is not written over")
				stop()
			})
		}
	}
}

// A freeze that cannot be read does not prevent the takeover of a cluster, although its
// run is Held for it.
func TestUnreadableFreezeOfAHeldRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		_, err := state.SaveRun(t.Context(), store, remediate.Run{ID: "r-1", Step: remediate.Held, Reason: "FalseOff",
			Target: remediate.Target{Cluster: "c", Node: "n-9", Host: "c/n-9"}})
		require.NoError(t, err)
		spoil(t, store, spoiled["freeze"])
		e, _, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Second)
		assert.True(t, e.Status()[0].Owner)
		stop()
	})
}

// Once all records can be read again, fenced continues, after a quiet period. // I16
func TestUnreadableStopThatIsRepaired(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		spoil(t, store, spoiled["hold"])
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		time.Sleep(20 * time.Minute)
		require.Empty(t, e.Runs("c"))
		bad, err := store.Get(t.Context(), state.KindHold, "c/other-1")
		require.NoError(t, err)
		require.NoError(t, store.Delete(t.Context(), bad.Kind, bad.Key, bad.Version))
		store.syncChanges()
		assert.Equal(t, 1, heard(t, events, "can be read again"))
		time.Sleep(4*time.Minute + 50*time.Second)
		require.Empty(t, e.Runs("c"), "the quiet period follows")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}

// A record that is damaged while fenced runs has the same effect as one that was damaged
// before.
func TestStopThatBecomesUnreadable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, slowProof)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		spoil(t, store, spoiled["pause of everything"])
		store.syncChanges()
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Contains(t, r.Note, "cannot be read")
		assert.True(t, w.On())
		assert.Zero(t, w.Isolations())
		stop()
	})
}
