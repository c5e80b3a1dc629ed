package engine_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// until waits for the only run to stand at a step.
func until(t *testing.T, e *engine.Engine, step remediate.Step) remediate.Run {
	t.Helper()
	for range 100 * 60 {
		if runs := e.Runs("c"); len(runs) > 0 && runs[0].Step == step {
			return runs[0]
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Failf(t, "the step is not reached", "%s; runs: %+v", step, e.Runs("c"))
	return remediate.Run{}
}

func ofRun(r remediate.Run) wire.Order {
	return wire.Order{Run: r.ID, Actor: "ada", Reason: "enough"}
}

// An abort rolls back a run before the isolation, and completes it after that. // I20
func TestAbortAtEachStep(t *testing.T) {
	for _, tc := range []struct {
		at, end remediate.Step
		deleted int
	}{
		{remediate.PowerOff, remediate.Aborted, 0},
		{remediate.PowerOn, remediate.Done, 1},
		{remediate.AwaitNode, remediate.Done, 1},
	} {
		t.Run(string(tc.at), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, _, stop := start(t, w, store, nil)
				r := until(t, e, tc.at)
				out, err := e.Abort(t.Context(), ofRun(r))
				require.NoError(t, err)
				assert.Equal(t, r.ID, out.Run)
				w.pauseCheck()
				time.Sleep(10 * time.Minute)
				assert.Equal(t, tc.end, only(t, e).Step)
				assert.Equal(t, tc.deleted, w.Isolations())
				assert.True(t, w.On())
				_, err = e.Abort(t.Context(), ofRun(r))
				refusedFor(t, err, reason.NoRun)
				_, err = e.Retry(t.Context(), ofRun(r))
				refusedFor(t, err, reason.NoRun)
				r.ID = "of-nobody"
				_, err = e.Abort(t.Context(), ofRun(r))
				refusedFor(t, err, reason.NoSuchRun)
				stop()
			})
		})
	}
}

// An order that arrives while a record is saved prevents the destructive write for which
// the record is saved: the order was given before that write.
func TestOrderDuringASaveStopsTheNextWrite(t *testing.T) {
	for _, tc := range []struct {
		write     remediate.Action
		end       remediate.Step
		off, gone int // commands, deletions
	}{
		{remediate.SendOff, remediate.Aborted, 0, 0},
		{remediate.IsolateNode, remediate.Aborted, 1, 0},
		{remediate.SendOn, remediate.Done, 1, 1},
		{remediate.RestoreTargetNode, remediate.Done, 1, 1},
	} {
		t.Run(string(tc.write), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, inner *failingStore) {
				store := &stubborn{Store: inner}
				e, _, stop := start(t, w, store, nil)
				answered := make(chan error, 1)
				var ordered atomic.Bool
				store.watch(func(run []byte) {
					if !bytes.Contains(run, []byte(`"`+tc.write+`"`)) || ordered.Swap(true) {
						return
					}
					go func() {
						_, err := e.Abort(t.Context(), ofRun(e.Runs("c")[0]))
						answered <- err
					}()
					time.Sleep(time.Second)
					w.pauseCheck() // no other run begins
				})
				time.Sleep(10 * time.Minute)
				require.NoError(t, <-answered)
				r := only(t, e)
				assert.Equal(t, tc.end, r.Step, "%s: %s", r.Reason, r.Note)
				assert.Equal(t, []int{tc.off, tc.gone}, []int{w.Count(bmc.CommandOff), w.Isolations()})
				assert.True(t, w.On())
				stop()
			})
		})
	}
}

// With AsIs a Held run ends, and its host stays as it is. For any other run AsIs is
// refused.
func TestAbortAsIs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		o := byHand
		o.OffOnly = true
		_, err := e.Fence(t.Context(), o)
		require.NoError(t, err)
		asIs := ofRun(until(t, e, remediate.PowerOff))
		asIs.AsIs = true
		_, err = e.Abort(t.Context(), asIs)
		refusedFor(t, err, reason.OrderRefused)
		until(t, e, remediate.Held)
		_, err = e.Abort(t.Context(), asIs)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Equal(t, "ClosedAsIs", string(r.Reason))
		assert.False(t, w.On())
		assert.Zero(t, w.Count(bmc.CommandOn))
		stop()
	})
}

// A retry continues a Held run, and every reason is evaluated again.
func TestRetryOfAHeldRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e, _, stop := start(t, w, store, nil)
		r := until(t, e, remediate.PowerOff)
		_, err := e.Retry(t.Context(), ofRun(r))
		refusedFor(t, err, reason.OrderRefused)
		until(t, e, remediate.Held)
		w.SetFault(fake.NoFault)
		_, err = e.Retry(t.Context(), ofRun(r))
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
		stop()
	})
}

// A retry does not make a BMC trusted that has falsely read Off. // I5
func TestRetryOfAFrozenHostIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		until(t, e, remediate.PowerOff)
		w.SetLeaseMoving(true)
		r := until(t, e, remediate.Held)
		require.Equal(t, "FalseOff", string(r.Reason))
		_, err := e.Retry(t.Context(), ofRun(r))
		refusedFor(t, err, reason.Frozen)
		stop()
	})
}

// If the store refuses, the order fails: an order is durable when it is answered. // I19
func TestOrdersAreDurableWhenAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		r := until(t, e, remediate.AwaitNode)
		store.set(true)
		_, err := e.Abort(t.Context(), ofRun(r))
		require.ErrorContains(t, err, "disk full")
		store.set(false)
		time.Sleep(10 * time.Minute)
		assert.Nil(t, only(t, e).Abort)
		stop()
	})
}
