package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

var byHand = wire.Order{Cluster: "c", Node: "n-1", Actor: "ada (uid 1000)", Reason: "smoke"}

// dryRun is the order that only shows what it would do.
func dryRun(o wire.Order) wire.Order {
	o.DryRun = true
	return o
}

func TestFenceOffOnlyStaysOffUntilUnfence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck() // only people act here
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		o := byHand
		o.OffOnly = true
		out, err := e.Fence(t.Context(), o)
		require.NoError(t, err)
		again, err := e.Fence(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, order.Outcome{Run: out.Run, Joined: true}, again)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Held, r.Step)
		assert.Equal(t, "OperatorOff", string(r.Reason))
		assert.Zero(t, w.Count(bmc.CommandOn))

		_, err = e.Unfence(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
		stop()
	})
}

func TestDryRunAndRefusedFenceTouchNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		o := dryRun(byHand)
		out, err := e.Fence(t.Context(), o)
		require.NoError(t, err)
		assert.NotEmpty(t, out.Gates)

		w.setContested(remediate.Yes)
		_, err = e.Fence(t.Context(), byHand)
		var refusal *reason.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, reason.Contested, refusal.Reason, "a rival binds people too")
		o = byHand
		o.Node = "no-such-node"
		_, err = e.Fence(t.Context(), o)
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, reason.NoSuchNode, refusal.Reason)
		assert.Empty(t, w.Commands())
		assert.Empty(t, e.Runs(""))
		stop()
	})
}

// A pause before the Node is isolated rolls the power-off back. // I23
func TestPauseRollsBackBeforeTheIsolation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		_, err := e.Pause(t.Context(), wire.Order{Actor: "ada", Reason: "stop"})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Equal(t, "Paused", string(r.Reason))
		assert.Zero(t, w.Isolations())
		assert.True(t, w.On())
		stop()

		e, _, stop = start(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("c"), 1, "the pause survives a restart")
		stop()
	})
}

func TestArmingAnObservingClusterActsAndDisarmingStops(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const quietPeriod = 5 * time.Minute
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Clusters[0].Mode, o.Guards.QuietPeriod = guard.ModeObserve, quietPeriod
		})
		time.Sleep(2 * quietPeriod)
		require.Empty(t, e.Runs("c"))
		dry := dryRun(byHand)
		_, err := e.Arming.Arm(t.Context(), dry)
		require.NoError(t, err)
		armed, err := e.Arming.Arm(t.Context(), byHand)
		require.NoError(t, err)
		assert.Equal(t, time.Now().Add(quietPeriod).Unix(), armed.Until.Unix())
		time.Sleep(quietPeriod - time.Second)
		require.Empty(t, e.Runs("c"), "the quiet period comes first")
		again, err := e.Arming.Arm(t.Context(), byHand)
		require.NoError(t, err)
		assert.Contains(t, again.Unchanged, "armed already")
		time.Sleep(3 * time.Second)
		require.Len(t, e.Runs("c"), 1)
		_, err = e.Arming.Disarm(t.Context(), byHand)
		require.NoError(t, err)
		stop()
	})
}

// disarm never claims to have stopped a mode that it does not stop. What arm stored for mode
// observe is removed there too.
func TestDisarmStopsNoOtherMode(t *testing.T) {
	refused := func(t *testing.T, e *engine.Engine) string {
		_, err := e.Arming.Disarm(t.Context(), byHand)
		r, is := reason.AsRefusal(err)
		require.True(t, is, "%v", err)
		require.Equal(t, reason.OrderRefused, r.Reason)
		return r.Message
	}
	for _, mode := range []string{guard.ModeEvaluate, guard.ModeRespond} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			in := func(mode string) func(*engine.Options) {
				return func(o *engine.Options) { o.Clusters[0].Mode, o.Clusters[0].Requests = mode, w.Requests() }
			}
			e, _, stop := start(t, w, store, in(guard.ModeObserve))
			time.Sleep(time.Second)
			out, err := e.Arming.Disarm(t.Context(), byHand)
			require.NoError(t, err)
			require.Contains(t, out.Unchanged, "is not armed")
			_, err = e.Arming.Arm(t.Context(), byHand)
			require.NoError(t, err)
			stop()

			e, _, stop = start(t, w, store, in(mode))
			time.Sleep(time.Second)
			assert.Contains(t, refused(t, e), "is in mode "+mode+", which disarm does not stop: it is disarmed only for mode observe")
			assert.Contains(t, refused(t, e), "is in mode "+mode+", which disarm does not stop: nothing changed")
			assert.True(t, e.Status()[0].Armed)
			stop()

			e, _, stop = start(t, w, store, in(guard.ModeObserve))
			time.Sleep(time.Second)
			assert.False(t, e.Status()[0].Armed)
			stop()
		})
	}
}

// Old runs are removed, and a backup a week after its run. // I21
func TestOldRunsAndBackupsArePruned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		require.Equal(t, remediate.Done, r.Step)
		stop()
		left := func(after time.Duration) (backups, runs int) {
			time.Sleep(after)
			e, _, stop := start(t, w, store, nil)
			time.Sleep(2 * time.Second)
			stop()
			saved, err := state.Backups(t.Context(), store, r.ID)
			require.NoError(t, err)
			stored, err := state.LoadRuns(t.Context(), store)
			require.NoError(t, err)
			require.Len(t, e.Runs("c"), len(stored))
			return len(saved), len(stored)
		}
		backups, runs := left(6 * 24 * time.Hour)
		assert.Equal(t, []int{1, 1}, []int{backups, runs}, "kept for seven days")
		backups, runs = left(2 * 24 * time.Hour)
		assert.Equal(t, []int{0, 1}, []int{backups, runs}, "the run is history for ninety")
		backups, runs = left(90 * 24 * time.Hour)
		assert.Equal(t, []int{0, 0}, []int{backups, runs})
	})
}
