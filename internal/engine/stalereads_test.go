package engine_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
)

// onIntent calls f once, while a run's intent of an action is saved.
func onIntent(store *stubborn, a remediate.Action, f func()) {
	var once sync.Once
	store.watch(func(run []byte) {
		if bytes.Contains(run, []byte(`"intent":{"action":"`+string(a)+`"`)) {
			once.Do(f)
		}
	})
}

// The store hangs while the intent is saved, and the Node is Ready again before the
// command would be sent. // I4
func TestSlowSaveDoesNotPowerOffAReadyNode(t *testing.T) {
	for _, hang := range []time.Duration{5 * time.Second, time.Minute} {
		bubble(t, func(t *testing.T, w *world, inner *failingStore) {
			store := &stubborn{Store: inner}
			e, _, stop := start(t, w, store, nil)
			onIntent(store, remediate.SendOff, func() { w.Recover(); time.Sleep(hang) })
			time.Sleep(5 * time.Minute)
			assert.Zero(t, w.Count(bmc.CommandOff), "a save of %s", hang)
			assert.Equal(t, "Recovered", string(only(t, e).Reason))
			stop()
		})
	}
}

// Another remediator that comes while the record is saved is noticed before the Off. // I22
func TestSlowSaveDoesNotPowerOffBesideARemediator(t *testing.T) {
	for _, hang := range []time.Duration{5 * time.Second, time.Minute} {
		bubble(t, func(t *testing.T, w *world, inner *failingStore) {
			store := &stubborn{Store: inner}
			e, _, stop := start(t, w, store, nil)
			onIntent(store, remediate.SendOff, func() { w.setContested(remediate.Yes); time.Sleep(hang) })
			time.Sleep(5 * time.Minute)
			assert.Zero(t, w.Count(bmc.CommandOff), "a save of %s", hang)
			assert.Equal(t, "Contested", string(only(t, e).Reason))
			stop()
		})
	}
}

// The same if the audit log is slow. // I4
func TestSlowRecordDoesNotPowerOffAReadyNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var once sync.Once
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Record = func(e event.Event) error {
				if e.Action == remediate.SendOff {
					once.Do(func() { w.Recover(); time.Sleep(4900 * time.Millisecond) })
				}
				return nil
			}
		})
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		assert.Equal(t, "Recovered", string(only(t, e).Reason))
		stop()
	})
}

// A Machine whose Node is Ready is not replaced either. // I4, I14
func TestSlowSaveDoesNotReplaceAReadyMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		w.ofClusterAPI()
		store := &stubborn{Store: inner}
		_, _, stop := start(t, w, store, nil)
		var saved atomic.Bool
		onIntent(store, remediate.DeleteTargetMachine, func() { saved.Store(true); w.Recover(); time.Sleep(time.Minute) })
		time.Sleep(5 * time.Minute)
		require.True(t, saved.Load())
		assert.Zero(t, w.HandedOver())
		stop()
	})
}

// A BMC that is found to read Off falsely while the record is written gets no Off. // I5
func TestFreezeDuringTheRecordPreventsOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Record = func(e event.Event) error {
				if e.Action == remediate.SendOff {
					lied(t, store, "n-1", "")
					store.changed <- struct{}{}
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		stop()
	})
}

// A store and an audit log that are always slow do not prevent fencing: what was seen is
// read once more. // L1
func TestSlowStoreAndRecordStillFence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		store.watch(func([]byte) { time.Sleep(7 * time.Second) })
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Run.OffDeadline = 5 * time.Minute
			o.Record = func(event.Event) error { time.Sleep(4 * time.Second); return nil }
		})
		time.Sleep(30 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		assert.Equal(t, 1, w.Isolations())
		store.watch(func([]byte) {})
		stop()
	})
}

// blinking is a BMC that answers a single time, when it is told to.
type blinking struct {
	bmc.Power
	once *atomic.Bool
}

func (b blinking) Read(ctx context.Context) (bmc.Reading, error) {
	if b.once.Swap(false) {
		return bmc.Reading{State: bmc.On, At: time.Now(), Session: 1, Identity: bmc.Identity{UUID: hostUUID}}, nil
	}
	return b.Power.Read(ctx)
}

// Evidence against a run that only this second look finds is not lost. // I26
func TestSecondLookIsEvidence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		w.pauseCheck()
		w.dead()
		store, once := &stubborn{Store: inner}, new(atomic.Bool)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Open = func(bmc.Device) (bmc.Power, error) { return blinking{w.bmc(), once}, nil }
		})
		onIntent(store, remediate.IsolateNode, func() { time.Sleep(7 * time.Second); once.Store(true) })
		time.Sleep(time.Second)
		_, err := e.ConfirmOff(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Held, r.Step)
		assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason))
		assert.Zero(t, w.Isolations())
		stop()
	})
}
