package engine_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// stubborn is a store that does not take people's records while it is told so.
type stubborn struct {
	state.Store
	mu     sync.Mutex
	refuse bool
	during func(run []byte) // called while the record of a run is being saved
}

func (s *stubborn) Put(ctx context.Context, r state.Record) (uint64, error) {
	s.mu.Lock()
	refuse, during := s.refuse, s.during
	s.mu.Unlock()
	if people := r.Kind == state.KindCluster || r.Kind == state.KindHold; people && refuse {
		return 0, errors.New("disk full")
	}
	if r.Kind == state.KindRun && during != nil {
		during(r.Data)
	}
	return s.Store.Put(ctx, r)
}

func (s *stubborn) watch(during func(run []byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.during = during
}

func (s *stubborn) set(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// stopBy is every way in which people stop something.
var stopBy = map[string]func(t *testing.T, e *engine.Engine, file string) order.Outcome{
	"pause": func(t *testing.T, e *engine.Engine, _ string) order.Outcome {
		out, err := e.Pause(t.Context(), wire.Order{Actor: "ada", Reason: "stop"})
		require.NoError(t, err)
		return out
	},
	"pause of the cluster": func(t *testing.T, e *engine.Engine, _ string) order.Outcome {
		out, err := e.Pause(t.Context(), byHand)
		require.NoError(t, err)
		return out
	},
	"hold": func(t *testing.T, e *engine.Engine, _ string) order.Outcome {
		out, err := e.Hold(t.Context(), byHand)
		require.NoError(t, err)
		return out
	},
	"file": func(t *testing.T, _ *engine.Engine, file string) order.Outcome {
		require.NoError(t, os.WriteFile(file, []byte("ticket 4711\n"), 0o600))
		return order.Outcome{Unsaved: "as it should be"}
	},
}

func eachStop(t *testing.T, f func(t *testing.T, w *world, store *stubborn, file string, stop func(*testing.T, *engine.Engine, string) order.Outcome)) {
	for name, stop := range stopBy {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "paused")
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				f(t, w, &stubborn{Store: store}, file, stop)
			})
		})
	}
}

func pausedBy(file string) func(*engine.Options) {
	return func(o *engine.Options) { o.PauseFile = file }
}

// A stop before the Node is isolated rolls the power-off back, even if the store does not
// accept the stop. // I23
func TestStopsApplyWithoutTheStore(t *testing.T) {
	eachStop(t, func(t *testing.T, w *world, store *stubborn, file string, stopNow func(*testing.T, *engine.Engine, string) order.Outcome) {
		e, _, stop := start(t, w, store, pausedBy(file))
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		store.set(true)
		assert.NotEmpty(t, stopNow(t, e, file).Unsaved, "the order says that it does not last")
		time.Sleep(time.Second + time.Millisecond)
		assert.Equal(t, remediate.PowerOn, only(t, e).Step, "within a second")
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Equal(t, "Paused", string(r.Reason))
		assert.Zero(t, w.Isolations())
		assert.True(t, w.On())
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		stop()
	})
}

// A stop that arrives while a record is saved prevents the write for which the record is
// saved. // I23
func TestStopDuringASaveStopsTheNextWrite(t *testing.T) {
	eachStop(t, func(t *testing.T, w *world, store *stubborn, file string, stopNow func(*testing.T, *engine.Engine, string) order.Outcome) {
		e, _, stop := start(t, w, store, pausedBy(file))
		var given sync.Once
		store.watch(func(run []byte) {
			if bytes.Contains(run, []byte(`"SendOff"`)) {
				given.Do(func() { stopNow(t, e, file) })
			}
		})
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, "Paused", string(r.Reason))
		assert.Zero(t, w.Count(bmc.CommandOff))
		assert.True(t, w.On())
		stop()
	})
}

// When the pause file is removed, a quiet period begins, as when a person ends a pause. It
// survives a restart. // I16
func TestEndOfThePauseFileBeginsAQuietPeriod(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paused")
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		require.NoError(t, os.WriteFile(file, []byte("ticket\t4711\n"), 0o600))
		configured := func(o *engine.Options) { o.PauseFile, o.Guards.QuietPeriod = file, 5*time.Minute }
		e, _, stop := start(t, w, store, configured)
		time.Sleep(20 * time.Minute)
		require.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Paused).Value, "ticket")
		_, err := e.Resume(t.Context(), wire.Order{Actor: "ada", Reason: "go"})
		require.NoError(t, err)
		assert.False(t, gate(t, e, reason.Paused).Pass, "only who takes the file away ends its pause")
		require.NoError(t, os.Remove(file))
		time.Sleep(2 * time.Second)
		stop()

		e, _, stop = start(t, w, store, configured)
		time.Sleep(4 * time.Minute)
		require.Empty(t, e.Runs("c"))
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}

// To resume what is not paused changes nothing: no quiet period begins.
func TestResumeWithNothingPausedChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		w.pauseCheck()
		time.Sleep(10 * time.Minute)
		before := store.cluster(t, state.AllClusters)
		for _, cluster := range []string{state.AllClusters, "c"} {
			out, err := e.Resume(t.Context(), wire.Order{Cluster: cluster, Actor: "ada", Reason: "go"})
			require.NoError(t, err)
			assert.NotEmpty(t, out.Unchanged)
		}
		assert.Equal(t, before, store.cluster(t, state.AllClusters))
		x, err := e.Explain(t.Context(), "c", "n-1")
		require.NoError(t, err)
		assert.False(t, refusing(x.Gates, reason.QuietPeriod))
		assert.Equal(t, 2, heard(t, events, "although nothing was paused"), "the orders are on record")

		_, err = e.Pause(t.Context(), byHand)
		require.NoError(t, err)
		out, err := e.Resume(t.Context(), wire.Order{Actor: "ada", Reason: "go"})
		require.NoError(t, err)
		assert.NotEmpty(t, out.Unchanged, "the cluster is paused, and not all clusters")
		assert.Contains(t, out.Still, "that ends with --cluster c")
		out, err = e.Resume(t.Context(), byHand)
		require.NoError(t, err)
		assert.Empty(t, out.Unchanged)
		stop()
	})
}

// A pause file whose path cannot be read pauses: it may exist. // I23
func TestUnreadablePauseFilePauses(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("nothing", filepath.Join(dir, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	for _, path := range []string{"file", "file/below", "link", "directory"} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			e, _, stop := start(t, w, store, pausedBy(filepath.Join(dir, path)))
			time.Sleep(2 * time.Minute)
			assert.Empty(t, e.Runs("c"), path)
			assert.False(t, gate(t, e, reason.Paused).Pass, path)
			stop()
		})
	}
}

func TestPauseForAWhileEndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		quiet := func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute }
		e, _, stop := start(t, w, store, quiet)
		time.Sleep(time.Second)
		o := wire.Order{Actor: "ada", Reason: "switch upgrade", For: wire.Span(time.Hour)}
		out, err := e.Pause(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, time.Now().UTC().Add(time.Hour), out.Until)
		o.For = wire.Span(time.Minute)
		out, err = e.Pause(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, time.Now().UTC().Add(time.Hour), out.Until, "a pause that stands is not shortened")
		time.Sleep(30 * time.Minute)
		stop()

		e, events, stop := start(t, w, store, quiet)
		time.Sleep(34 * time.Minute)
		require.Empty(t, e.Runs("c"), "the quiet period follows")
		assert.NotContains(t, store.cluster(t, state.AllClusters).PausedBy, "ada", "the end is stored")
		assert.Equal(t, 1, heard(t, events, "is over"))
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}

// heard counts the events of a wording.
func heard(t *testing.T, events *event.Stream, words string) int {
	t.Helper()
	return len(eventsOf(t, events, func(ev event.Event) bool {
		return strings.Contains(ev.Message, words)
	}))
}

// A stop that the store refused is stored as soon as possible. Until then it can be ended
// without the store.
func TestUnsavedStopsAreSavedLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		store.set(true)
		for range 2 {
			out, err := e.Pause(t.Context(), byHand)
			require.NoError(t, err)
			require.NotEmpty(t, out.Unsaved)
			_, err = e.Resume(t.Context(), byHand)
			require.NoError(t, err, "it was never stored")
			_, err = e.Hold(t.Context(), byHand)
			require.NoError(t, err)
			_, err = e.ReleaseHold(t.Context(), byHand)
			require.NoError(t, err)
		}
		_, err := e.Pause(t.Context(), byHand)
		require.NoError(t, err)
		_, err = e.Hold(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		store.set(false)
		time.Sleep(2 * time.Second)
		stop()

		e, _, stop = start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Len(t, e.Holds("c"), 1)
		store.set(true)
		_, err = e.Resume(t.Context(), byHand)
		require.Error(t, err, "what is stored is not ended in memory alone")
		_, err = e.ReleaseHold(t.Context(), byHand)
		require.Error(t, err)
		assert.Len(t, e.Holds("c"), 1)
		stop()
	})
}

// Every instance that sees the end of a pause also has the quiet period, even if the store
// does not answer. // I16
func TestQuietPeriodAfterAStopNeedsNoStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paused")
	for name, end := range map[string]func(){
		"by itself": func() { time.Sleep(5 * time.Minute) },
		"the file":  func() { require.NoError(t, os.Remove(file)) },
	} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		bubble(t, func(t *testing.T, w *world, inner *failingStore) {
			store := &stubborn{Store: inner}
			e, _, stop := start(t, w, store, func(o *engine.Options) { o.PauseFile, o.Guards.QuietPeriod = file, 5*time.Minute })
			time.Sleep(20 * time.Minute)
			store.set(true)
			if name == "by itself" {
				require.NoError(t, os.Remove(file))
				_, err := e.Pause(t.Context(), heldFor(5*time.Minute))
				require.NoError(t, err)
			}
			end()
			time.Sleep(4*time.Minute + 58*time.Second)
			assert.Empty(t, e.Runs("c"), name)
			time.Sleep(10 * time.Second)
			assert.Len(t, e.Runs("c"), 1, name)
			stop()
		})
	}
}
