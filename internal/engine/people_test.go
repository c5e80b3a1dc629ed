package engine_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

func observing(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve }

// byAdmin is the order of an administrator.
func byAdmin() wire.Order {
	o := byHand
	o.Role = wire.Admin
	return o
}

// In mode observe only an administrator's order fences, and it fences nothing else.
func TestAdministratorFencesByHandInModeObserve(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, observing)
		time.Sleep(2 * time.Minute)
		refused(t, reason.Observing)(e.Fence(t.Context(), byHand))
		n, _ := w.Announcements()
		require.Zero(t, n, "nothing acts")

		out := accepted(t)(e.Fence(t.Context(), byAdmin()))
		n, _ = w.Announcements()
		assert.NotZero(t, n, "the Lease keeps other installations from acting")
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, out.Run, r.ID)
		assert.Equal(t, remediate.Done, r.Step)
		assert.True(t, r.Manual.Admin)
		assert.False(t, e.Status()[0].Armed)
		before, _ := w.Announcements()
		time.Sleep(10 * time.Minute)
		after, _ := w.Announcements()
		assert.Equal(t, before, after, "the Lease is kept for the run only")
	})
}

// Every other gate binds an administrator in mode observe, and so does another installation, of
// which only the Lease tells. // I22
func TestGatesBindAnAdministratorInModeObserve(t *testing.T) {
	for _, tc := range []struct {
		reason reason.Code
		set    func(*testing.T, *world, *engine.Engine)
	}{
		{reason.NotOwner, func(_ *testing.T, w *world, _ *engine.Engine) {
			w.setForeignHolder("fenced instance x holds the Lease")
		}},
		{reason.NotOwner, func(_ *testing.T, w *world, _ *engine.Engine) { w.failAnnouncements(errForbidden) }},
		{reason.Contested, func(_ *testing.T, w *world, _ *engine.Engine) { w.setContested(remediate.Yes) }},
		{reason.Paused, func(t *testing.T, _ *world, e *engine.Engine) {
			accepted(t)(e.Pause(t.Context(), wire.Order{Actor: "ada", Reason: "stop"}))
		}},
		{reason.Hold, func(t *testing.T, _ *world, e *engine.Engine) {
			accepted(t)(e.Hold(t.Context(), byHand))
		}},
	} {
		scene(t, string(tc.reason), func(t *testing.T, w *world, store *failingStore) {
			e := running(t, w, store, observing)
			time.Sleep(2 * time.Minute)
			tc.set(t, w, e)
			refused(t, tc.reason)(e.Fence(t.Context(), byAdmin()))
			time.Sleep(time.Minute)
			untouched(t, w, e)
		})
	}
}

// A dry run in mode observe asks every gate and the BMC, for somebody who may only look, and
// begins nothing.
func TestDryRunInModeObserveAsksTheBMC(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) {
			observing(o)
			o.Clusters[0].Pods = func(_ context.Context, node string) (wire.Pods, error) {
				return wire.Pods{Names: []string{"default/web-on-" + node}}, nil
			}
		})
		time.Sleep(2 * time.Minute)
		o := byHand
		o.DryRun, o.Role = true, wire.Viewer
		out, err := e.Fence(t.Context(), o)
		refusedFor(t, err, reason.Observing)
		failing := map[reason.Code]bool{}
		for _, g := range out.Gates {
			if !g.Pass {
				failing[g.Reason] = true
			}
			if g.Name == "identity" {
				assert.Equal(t, "match", g.Value)
			}
		}
		assert.Equal(t, map[reason.Code]bool{reason.Observing: true}, failing)
		require.NotNil(t, out.Target)
		assert.Equal(t, []string{"Unknown", "match", "c", "n-1"}, []string{out.Target.Ready, out.Target.Identity, out.Target.Cluster, out.Target.Node})
		assert.Equal(t, []string{"default/web-on-n-1"}, out.Target.Pods.Names)
		assert.NotEmpty(t, out.Target.BMC)
		assert.NotZero(t, w.Reads())

		w.setContested(remediate.Yes)
		w.FailReads(noAnswer())
		out, err = e.Fence(t.Context(), o)
		refusedFor(t, err, reason.Observing)
		failing = map[reason.Code]bool{}
		for _, g := range out.Gates {
			failing[g.Reason] = failing[g.Reason] || !g.Pass
		}
		assert.True(t, failing[reason.Contested], "the cluster is asked although the BMC does not answer: %v", failing)
		assert.True(t, failing["BMCUnreachable"], "%v", failing)
		assert.Empty(t, w.Commands())
		assert.Zero(t, w.Count(bmc.CommandOff))
		n, _ := w.Announcements()
		assert.Zero(t, n)
	})
}

// Somebody who may only look does not have a refused account tried again before its time; who
// may fence does, because the password may have been corrected.
func TestDryRunOfAViewerLeavesARefusedAccountAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.FailReads(refusedAccount())
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		o := dryRun(byHand)
		refused(t, "BMCAuth")(e.Fence(t.Context(), o))
		asked := w.Reads()
		o.Role = wire.Viewer
		refused(t, "BMCAuth")(e.Fence(t.Context(), o))
		assert.Equal(t, asked, w.Reads(), "the account is not tried again")
		w.FailReads(nil)
		o.Role = wire.Operator
		accepted(t)(e.Fence(t.Context(), o))
	})
}

// Dry runs of viewers, however many and however slow, keep no operator's from its place.
func TestOperatorsDryRunWaitsForNoViewer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		slow := make(chan struct{})
		var began atomic.Int32
		e := running(t, w, store, func(o *engine.Options) {
			o.Clusters[0].Pods = func(ctx context.Context, _ string) (wire.Pods, error) {
				if ctx.Value(slow) != nil {
					began.Add(1)
					<-slow
				}
				return wire.Pods{}, nil
			}
		})
		time.Sleep(2 * time.Second)
		var viewers sync.WaitGroup
		for range 20 {
			viewers.Go(func() {
				o := dryRun(byHand)
				o.Role = wire.Viewer
				_, err := e.Fence(context.WithValue(t.Context(), slow, true), o)
				assert.NoError(t, err)
			})
		}
		time.Sleep(time.Minute)
		assert.Equal(t, int32(2), began.Load(), "the others wait")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		accepted(t)(e.Fence(ctx, dryRun(byHand)))
		close(slow)
		viewers.Wait()
	})
}

// In mode observe a manual confirmation begins no run, whoever gives it. It continues one that an
// administrator began and that cannot go on without it. // I26
func TestConfirmationInModeObserve(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, observing)
		time.Sleep(2 * time.Minute)
		out := accepted(t)(e.Fence(t.Context(), byAdmin()))
		await(t, func() bool { return w.Count(bmc.CommandOff) > 0 })
		w.dead()
		until(t, e, remediate.Held)
		assert.Equal(t, out.Run, accepted(t)(e.ConfirmOff(t.Context(), byAdmin())).Run)
	})
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.dead()
		e := running(t, w, store, observing)
		time.Sleep(2 * time.Minute)
		refused(t, reason.Observing)(e.ConfirmOff(t.Context(), byAdmin()))
		assert.Empty(t, e.Runs("c"))
	})
}

// stubborn is a store that does not take people's records while it is told so.
type stubborn struct {
	state.Store
	mu     sync.Mutex
	refuse bool
	noRuns bool             // runs are not saved
	during func(run []byte) // called while the record of a run is being saved
}

func (s *stubborn) Put(ctx context.Context, r state.Record) (uint64, error) {
	s.mu.Lock()
	refuse, noRuns, during := s.refuse, s.noRuns, s.during
	s.mu.Unlock()
	if r.Kind == state.KindRun && noRuns {
		return 0, errors.New("disk full")
	}
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

func (s *stubborn) refuseRuns(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noRuns = refuse
}

func (s *stubborn) set(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// stopBy is every way in which people stop something.
var stopBy = map[string]func(t *testing.T, e *engine.Engine, file string) order.Outcome{
	"pause": func(t *testing.T, e *engine.Engine, _ string) order.Outcome {
		return accepted(t)(e.Pause(t.Context(), wire.Order{Actor: "ada", Reason: "stop"}))
	},
	"pause of the cluster": func(t *testing.T, e *engine.Engine, _ string) order.Outcome {
		return accepted(t)(e.Pause(t.Context(), byHand))
	},
	"hold": func(t *testing.T, e *engine.Engine, _ string) order.Outcome {
		return accepted(t)(e.Hold(t.Context(), byHand))
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
		stands(t, e, remediate.Aborted, "Paused")
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
		accepted(t)(e.Resume(t.Context(), wire.Order{Actor: "ada", Reason: "go"}))
		assert.False(t, gate(t, e, reason.Paused).Pass, "only who takes the file away ends its pause")
		require.NoError(t, os.Remove(file))
		time.Sleep(2 * time.Second)
		stop()

		e = running(t, w, store, configured)
		time.Sleep(4 * time.Minute)
		require.Empty(t, e.Runs("c"))
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// To resume what is not paused changes nothing: no quiet period begins.
func TestResumeWithNothingPausedChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		w.pauseCheck()
		time.Sleep(10 * time.Minute)
		before := store.cluster(t, state.AllClusters)
		for _, cluster := range []string{state.AllClusters, "c"} {
			assert.NotEmpty(t, accepted(t)(e.Resume(t.Context(), wire.Order{Cluster: cluster, Actor: "ada", Reason: "go"})).Unchanged)
		}
		assert.Equal(t, before, store.cluster(t, state.AllClusters))
		assert.False(t, refusing(explained(t, e).Gates, reason.QuietPeriod))
		assert.Equal(t, 2, heard(t, events, "although nothing was paused"), "the orders are on record")

		accepted(t)(e.Pause(t.Context(), byHand))
		out := accepted(t)(e.Resume(t.Context(), wire.Order{Actor: "ada", Reason: "go"}))
		assert.NotEmpty(t, out.Unchanged, "the cluster is paused, and not all clusters")
		assert.Contains(t, out.Still, "to end that: fencectl resume --cluster c --reason WHY")
		out = accepted(t)(e.Resume(t.Context(), byHand))
		assert.Empty(t, out.Unchanged)
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
			e := running(t, w, store, pausedBy(filepath.Join(dir, path)))
			time.Sleep(2 * time.Minute)
			assert.Empty(t, e.Runs("c"), path)
			assert.False(t, gate(t, e, reason.Paused).Pass, path)
		})
	}
}

func TestPauseForAWhileEndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		quiet := func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute }
		e, _, stop := start(t, w, store, quiet)
		time.Sleep(time.Second)
		o := wire.Order{Actor: "ada", Reason: "switch upgrade", For: wire.Span(time.Hour)}
		out := accepted(t)(e.Pause(t.Context(), o))
		assert.Equal(t, time.Now().UTC().Add(time.Hour), out.Until)
		o.For = wire.Span(time.Minute)
		out = accepted(t)(e.Pause(t.Context(), o))
		assert.Equal(t, time.Now().UTC().Add(time.Hour), out.Until, "a pause that stands is not shortened")
		time.Sleep(30 * time.Minute)
		stop()

		e, events, _ := start(t, w, store, quiet)
		time.Sleep(34 * time.Minute)
		require.Empty(t, e.Runs("c"), "the quiet period follows")
		assert.NotContains(t, store.cluster(t, state.AllClusters).PausedBy, "ada", "the end is stored")
		assert.Equal(t, 1, heard(t, events, "is over"))
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
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
			require.NotEmpty(t, accepted(t)(e.Pause(t.Context(), byHand)).Unsaved)
			accepted(t)(e.Resume(t.Context(), byHand)) // it was never stored
			accepted(t)(e.Hold(t.Context(), byHand))
			accepted(t)(e.ReleaseHold(t.Context(), byHand))
		}
		accepted(t)(e.Pause(t.Context(), byHand))
		accepted(t)(e.Hold(t.Context(), byHand))
		time.Sleep(time.Minute)
		store.set(false)
		time.Sleep(2 * time.Second)
		stop()

		e = running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Len(t, e.Holds("c"), 1)
		store.set(true)
		_, err := e.Resume(t.Context(), byHand)
		require.Error(t, err, "what is stored is not ended in memory alone")
		_, err = e.ReleaseHold(t.Context(), byHand)
		require.Error(t, err)
		assert.Len(t, e.Holds("c"), 1)
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
			e := running(t, w, store, func(o *engine.Options) { o.PauseFile, o.Guards.QuietPeriod = file, 5*time.Minute })
			time.Sleep(20 * time.Minute)
			store.set(true)
			if name == "by itself" {
				require.NoError(t, os.Remove(file))
				accepted(t)(e.Pause(t.Context(), heldFor(5*time.Minute)))
			}
			end()
			time.Sleep(4*time.Minute + 58*time.Second)
			assert.Empty(t, e.Runs("c"), name)
			time.Sleep(10 * time.Second)
			assert.Len(t, e.Runs("c"), 1, name)
		})
	}
}
