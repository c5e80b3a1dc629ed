package engine_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
)

// A stop that is given while neither the API nor the store answers applies within a
// second, and nothing is isolated at the moment when both return. // I23
func TestPauseAppliesWithinASecondWithAPIAndStoreDown(t *testing.T) {
	for name, stopNow := range stopBy {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "paused")
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, _, stop := start(t, w, store, func(o *engine.Options) { slowProof(o); o.PauseFile = file })
				allDown(t, w, store)
				assert.NotEmpty(t, stopNow(t, e, file).Unsaved)
				time.Sleep(time.Second)
				if name != "hold" {
					assert.NotEmpty(t, e.Status()[0].Paused)
				}
				time.Sleep(10 * time.Second) // the host would be proven off by now
				allBack(w, store)
				time.Sleep(5 * time.Minute)
				r := only(t, e)
				assert.Equal(t, remediate.Aborted, r.Step, "%s: %s", r.Reason, r.Note)
				assert.Equal(t, "Paused", string(r.Reason))
				assert.Zero(t, w.Isolations())
				assert.Equal(t, 1, w.Count(bmc.CommandOff))
				assert.True(t, w.On())
				stop()
			})
		})
	}
}

// The same outage without a stop isolates the Node: the test above shows the effect of the
// stop.
func TestRunEndsAfterAPIAndStoreWereDown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, slowProof)
		allDown(t, w, store)
		time.Sleep(11 * time.Second)
		allBack(w, store)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
		stop()
	})
}

// With both down permanently, a host that is off needs only the store to be powered on:
// without a record there is no command. // I19, I20
func TestPausedHostComesBackWithTheStoreAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paused")
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, func(o *engine.Options) { slowProof(o); o.PauseFile = file })
		allDown(t, w, store)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		time.Sleep(time.Minute)
		require.Zero(t, w.Count(bmc.CommandOn))
		store.set(false)
		time.Sleep(30 * time.Second)
		assert.True(t, w.On(), "the API is not needed for that")
		assert.Zero(t, w.Isolations())
		assert.True(t, only(t, e).Open())
		stop()
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
