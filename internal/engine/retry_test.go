package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// bars keep a Held run where it is, whoever orders otherwise.
var bars = map[reason.Code]func(t *testing.T, w *world, e *engine.Engine){
	reason.Paused: func(t *testing.T, _ *world, e *engine.Engine) {
		_, err := e.Pause(t.Context(), byHand)
		require.NoError(t, err)
	},
	reason.Hold: func(t *testing.T, _ *world, e *engine.Engine) {
		_, err := e.Hold(t.Context(), byHand)
		require.NoError(t, err)
	},
	reason.Contested: func(_ *testing.T, w *world, _ *engine.Engine) {
		w.setContested(remediate.Yes)
	},
	reason.NotOwner: func(_ *testing.T, w *world, _ *engine.Engine) {
		w.setForeignHolder("fenced instance x holds the Lease")
		time.Sleep(6 * time.Second) // until it is announced again
	},
	reason.PowerOwner: func(_ *testing.T, w *world, _ *engine.Engine) {
		w.Do(func(s *fake.State) { s.PowerForbidden = "somebody else has it off" })
	},
}

// An order is refused before anything is saved if a gate would keep the run where it is.
// It works when that gate passes. // I22, I23
func TestOrdersForAHeldRunAreRefusedBeforeTheyAreSaved(t *testing.T) {
	orders := map[string]func(*engine.Engine, remediate.Run, *testing.T) error{
		"retry": func(e *engine.Engine, r remediate.Run, t *testing.T) error {
			_, err := e.Retry(t.Context(), ofRun(r))
			return err
		},
		"confirm-off": func(e *engine.Engine, _ remediate.Run, t *testing.T) error {
			_, err := e.ConfirmOff(t.Context(), byHand)
			return err
		},
	}
	for name, give := range orders {
		for code, bar := range bars {
			if code == reason.PowerOwner && name == "confirm-off" {
				continue // nobody's power is touched
			}
			t.Run(name+" "+string(code), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world, store *failingStore) {
					e, _, stop := start(t, w, store, nil)
					until(t, e, remediate.PowerOff)
					w.dead()
					until(t, e, remediate.Held)
					bar(t, w, e)
					r := only(t, e)
					refusedFor(t, give(e, r, t), code)
					assert.Equal(t, r.Version, only(t, e).Version, "nothing is saved")
					time.Sleep(10 * time.Minute)
					assert.Equal(t, remediate.Held, only(t, e).Step)
					assert.Zero(t, w.Isolations())
					stop()
				})
			})
		}
	}
}

// A retry that would power-cycle a host for which nobody asks any more is refused: the run would
// rest again at once. Once somebody asks, it is carried out; and one that only brings the host back
// always is. // I4
func TestRetryOfARunThatNobodyAsksForIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts, o.Run.ReadyTimeout = 1, 2*time.Minute
		})
		r := until(t, e, remediate.Waiting)
		require.Equal(t, reason.AttemptsExhausted, r.Reason)
		w.pauseCheck()
		time.Sleep(time.Minute)
		before := only(t, e).Version
		_, err := e.Retry(t.Context(), ofRun(r))
		refusedFor(t, err, reason.Withdrawn)
		assert.Contains(t, err.Error(), "paused")
		assert.Equal(t, before, only(t, e).Version, "nothing is saved")
		w.changeCheck(func(c *policy.Check) { c.Paused = false })
		time.Sleep(time.Minute)
		_, err = e.Retry(t.Context(), ofRun(r))
		require.NoError(t, err)
		until(t, e, remediate.AwaitNode)
		assert.Equal(t, 2, w.Count(bmc.CommandOff))

		w.pauseCheck()
		r = until(t, e, remediate.Waiting)
		require.Equal(t, reason.Withdrawn, r.Reason)
		_, err = e.Retry(t.Context(), ofRun(r))
		require.NoError(t, err)
		until(t, e, remediate.AwaitNode)
		assert.Equal(t, 2, w.Count(bmc.CommandOff))
		stop()
	})
}

// A frozen host cannot be confirmed off: its BMC has falsely read Off before. // I5
func TestConfirmOffOfAFrozenHostIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		until(t, e, remediate.PowerOff)
		w.SetLeaseMoving(true)
		r := until(t, e, remediate.Held)
		require.Equal(t, "FalseOff", string(r.Reason))
		w.SetLeaseMoving(false)
		w.dead()
		_, err := e.ConfirmOff(t.Context(), byHand)
		refusedFor(t, err, reason.ConfirmedOffContradicted) // fenced has just seen a renewal
		time.Sleep(time.Minute)
		_, err = e.ConfirmOff(t.Context(), byHand)
		refusedFor(t, err, reason.Frozen)
		assert.Nil(t, only(t, e).Confirmed)
		assert.Zero(t, w.Isolations())
		stop()
	})
}

// An instance that does not own the cluster accepts no order about a run, and reads no BMC
// for one. It names the owner. // I19
func TestOrdersAtAStandbyAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		p := newPair(t, w, store, nil)
		p.give("a")
		until(t, p.engine["a"], remediate.Held)
		time.Sleep(time.Minute)
		r := only(t, p.engine["b"])
		require.Equal(t, remediate.Held, r.Step)
		reads := w.Reads()
		for _, give := range []func(*engine.Engine) error{
			func(e *engine.Engine) error { _, err := e.Retry(t.Context(), ofRun(r)); return err },
			func(e *engine.Engine) error { _, err := e.Abort(t.Context(), ofRun(r)); return err },
			func(e *engine.Engine) error { _, err := e.Unfence(t.Context(), byHand); return err },
			func(e *engine.Engine) error { _, err := e.ConfirmOff(t.Context(), byHand); return err },
		} {
			err := give(p.engine["b"])
			refusedFor(t, err, reason.NotOwner)
			assert.Contains(t, err.Error(), "instance a owns the cluster")
		}
		assert.Equal(t, r.Version, only(t, p.engine["b"]).Version)
		assert.Equal(t, reads, w.Reads())
		stored, err := state.GetRun(t.Context(), store, r.ID)
		require.NoError(t, err)
		assert.Nil(t, stored.Retry)
		assert.Zero(t, w.Count(bmc.CommandOn))
		p.end()
	})
}
