package engine_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// What people stop stops the writes about a request, too: a pause, a hold, and a cluster that was
// disarmed. Only what a target that is well does not need any more goes then. // I23
func TestStopsForbidWritesAboutRequests(t *testing.T) {
	by := wire.Order{Cluster: "c", Actor: "p", Reason: "r"}
	on := wire.Order{Cluster: "c", Node: "n-1", Actor: "p", Reason: "r"}
	for name, c := range map[string]struct {
		stop, end func(*testing.T, *engine.Engine) error
		tidies    bool
	}{
		"pause": {
			func(t *testing.T, e *engine.Engine) error { _, err := e.Pause(t.Context(), by); return err },
			func(t *testing.T, e *engine.Engine) error { _, err := e.Resume(t.Context(), by); return err }, false,
		},
		"hold": {
			func(t *testing.T, e *engine.Engine) error { _, err := e.Hold(t.Context(), on); return err },
			func(t *testing.T, e *engine.Engine) error { _, err := e.ReleaseHold(t.Context(), on); return err }, false,
		},
		"disarm": {
			func(t *testing.T, e *engine.Engine) error { _, err := e.Arming.Disarm(t.Context(), by); return err },
			func(t *testing.T, e *engine.Engine) error { _, err := e.Arming.Arm(t.Context(), by); return err }, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				change := escalating(w, otherTemplate, thirdTemplate)
				e, _, stop := start(t, w, store, func(o *engine.Options) { change(o); o.Clusters[0].Mode = "observe" })
				time.Sleep(time.Second) // until it leads
				_, err := e.Arming.Arm(t.Context(), by)
				require.NoError(t, err)
				awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
				answer(w, "True")
				require.NoError(t, c.stop(t, e))
				time.Sleep(10 * time.Minute)
				require.True(t, others(w)[0].TimedOut.IsZero(), "its time is over, and it was not told")
				w.Recover()
				time.Sleep(2 * time.Minute)
				if !c.tidies {
					require.Len(t, others(w), 1)
					require.NoError(t, c.end(t, e))
					time.Sleep(2 * time.Minute)
				}
				assert.Empty(t, others(w))
				stop()
			})
		})
	}
}

// A pause that comes while a request is being prepared stops it at the last moment, and leaves no
// record behind. // I23
func TestPauseJustBeforeARequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var running atomic.Pointer[engine.Engine]
		change := handingOver(w)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			change(o)
			o.Record = func(ev event.Event) error {
				if ev.Type == event.Requested {
					_, err := running.Load().Pause(t.Context(), wire.Order{Cluster: "c", Actor: "p", Reason: "r"})
					assert.NoError(t, err)
				}
				return nil
			}
		})
		running.Store(e)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		gate(t, e, reason.Paused)
		asked, err := state.LoadAsked(t.Context(), store)
		require.NoError(t, err)
		assert.Empty(t, asked)
		stop()
	})
}

// Targets that others repair count in the limits of the cluster.
func TestLimitsCountWhatOthersRepair(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.setOthersDown(true)
		change := handingOver(w)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			change(o)
			o.Guards.MaxInFlight, o.Guards.MinPowerInterval = 1, 10*time.Minute
		})
		awaitAsked(t, w, "one is asked", func() bool { return len(others(w)) == 1 })
		time.Sleep(4 * time.Minute)
		require.Len(t, others(w), 1)
		first := others(w)[0].Name
		waits := map[string]string{"m-1": "other-0", "other-0": "n-1"}[first]
		x, err := e.Explain(t.Context(), "c", waits)
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(x.Gates, func(g reason.Gate) bool { return !g.Pass && g.Reason == reason.InFlightLimit }), "%+v", x.Gates)
		stop()
	})
}

// A creation without an answer may have made the object: for two minutes it may appear, and nobody
// acts on the target. Then it is tried again.
func TestCreationWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var tries atomic.Int32
		var first atomic.Int64
		w.Do(func(s *fake.State) {
			s.OnHandover = func() error {
				if tries.Add(1) > 1 {
					return nil
				}
				first.Store(time.Now().Unix())
				return errors.New("no answer")
			}
		})
		e, _, stop := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is tried", func() bool { return tries.Load() == 1 })
		time.Sleep(time.Minute)
		gate(t, e, reason.UnderRemediation)
		awaitAsked(t, w, "it is tried again", func() bool { return len(others(w)) == 1 })
		assert.GreaterOrEqual(t, time.Since(time.Unix(first.Load(), 0)), 2*time.Minute)
		stop()
	})
}

// One that certainly made nothing leaves no record.
func TestCreationThatIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.OnHandover = func() error { return escalate.ErrNotMade } })
		e, _, stop := start(t, w, store, handingOver(w))
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.RequestFailed)
		asked, err := state.LoadAsked(t.Context(), store)
		require.NoError(t, err)
		assert.Empty(t, asked)
		stop()
	})
}

// While the store refuses the record, nobody is asked. // I19
func TestNoRequestWithoutARecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, handingOver(w))
		time.Sleep(30 * time.Second)
		store.set(true)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		store.set(false)
		time.Sleep(6 * time.Minute)
		assert.Len(t, others(w), 1)
		gate(t, e, reason.UnderRemediation)
		stop()
	})
}

// A slow audit log makes the fresh reads old: nothing is made on them. // I4
func TestNoRequestOnOldReads(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change, slow := handingOver(w), atomic.Int32{}
		slow.Store(1)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			change(o)
			o.Record = func(ev event.Event) error {
				if ev.Type == event.Requested && slow.Add(-1) == 0 {
					time.Sleep(11 * time.Second)
				}
				return nil
			}
		})
		time.Sleep(75 * time.Second)
		require.Zero(t, slow.Load())
		assert.Empty(t, others(w))
		assert.Contains(t, gate(t, e, reason.RequestFailed).Value, "may have recovered meanwhile")
		time.Sleep(time.Minute)
		assert.Len(t, others(w), 1)
		stop()
	})
}

// Once the check does not ask any more, nothing is tried again.
func TestNothingIsTriedForACheckThatDoesNotAsk(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		prepared := func() (n int) { w.Do(func(s *fake.State) { n = s.Prepared }); return n }
		again := errors.Join(&reason.Refusal{Reason: reason.Contested, Message: "it is tried again soon"}, escalate.ErrNotMade)
		w.Do(func(s *fake.State) { s.OnHandover = func() error { return again } })
		_, _, stop := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is tried", func() bool { return prepared() > 0 })
		w.changeCheck(func(c *policy.Check) { c.Evaluator = "" })
		time.Sleep(500 * time.Millisecond)
		before := prepared()
		time.Sleep(10 * time.Minute)
		assert.Equal(t, before, prepared())
		stop()
	})
}
