package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
)

// A run that only replaces a Machine begins with the look that admitted it.
func TestMachineIsReplacedByTheLookThatAdmittedIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofClusterAPI()
		before := -1 // looks before the Machine was handed over
		w.OnLook(func(looks int) {
			if w.HandedOver() == 0 {
				before = looks
			}
		})
		e, _, stop := start(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		require.Equal(t, 1, w.HandedOver())
		assert.Equal(t, 1, before)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}

// What became of a deletion is not asked at once: other Machines may still have to be deleted.
func TestDeletedMachineIsLookedAtAMomentLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofClusterAPI()
		var last, next time.Time // the last look before the Machine was handed over, and the next one
		w.OnLook(func(int) {
			switch {
			case w.HandedOver() == 0:
				last = time.Now()
			case next.IsZero():
				next = time.Now()
			}
		})
		e, _, stop := start(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		require.Equal(t, 1, w.HandedOver())
		assert.GreaterOrEqual(t, next.Sub(last), time.Second)
		assert.Equal(t, remediate.Reprovisioned, only(t, e).Step)
		stop()
	})
}

// If the start of the run takes long, that look no longer counts, although an action may be done
// on it for longer: the run looks again. // I4
func TestLookThatAdmittedARunGrowsOld(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofClusterAPI()
		e, _, stop := start(t, w, store, slowStart(300*time.Millisecond, w.Recover))
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.HandedOver())
		assert.Equal(t, "Recovered", string(only(t, e).Reason))
		stop()
	})
}

// What is known without a look counts at once, however young the look is. // I23
func TestPauseAfterTheLookThatAdmittedARun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofClusterAPI()
		started := make(chan *engine.Engine, 1)
		e, _, stop := start(t, w, store, slowStart(time.Millisecond, func() {
			_, err := (<-started).Pause(t.Context(), byHand)
			assert.NoError(t, err)
		}))
		started <- e
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.HandedOver())
		stop()
	})
}

// A host is looked at again before it is switched off, however young the look is that admitted
// the run. // I4
func TestHostIsLookedAtAgainBeforeItIsSwitchedOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, slowStart(time.Millisecond, w.Recover))
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		assert.Equal(t, "Recovered", string(only(t, e).Reason))
		stop()
	})
}

// slowStart has the record of the start of the first run take a while, and does something first.
func slowStart(takes time.Duration, first func()) func(*engine.Options) {
	var once sync.Once
	return func(o *engine.Options) {
		o.Record = func(e event.Event) error {
			if e.Type == event.Started {
				once.Do(func() {
					first()
					time.Sleep(takes)
				})
			}
			return nil
		}
	}
}
