package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// Metal3's provider (CAPM3) starts in the middle of a run, and requests that the host is off. The run is given up, takes
// only its own lock off, and sends no On until that request is gone. People are told. // I20, I22
func TestAbortLeavesThePowerToMetal3sOwnRemediation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Run.RetryInterval = time.Minute })
		for w.Count(bmc.CommandOff) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		m.Do(func(s *fake.State) { s.LockPower("h-1", true) })
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		require.Equal(t, remediate.Waiting, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, reason.PowerForbidden, r.Reason)
		assert.Contains(t, r.Note, fake.OtherPowerLock)
		assert.False(t, w.On())
		assert.Zero(t, w.Count(bmc.CommandOn), "the provider takes the host for off")
		assert.Zero(t, w.Isolations())
		m.Do(func(s *fake.State) {
			_, ours := s.Metal["h-1"].Annotations["reboot.metal3.io/fenced"]
			_, theirs := s.Metal["h-1"].Annotations[fake.OtherPowerLock]
			assert.Equal(t, []bool{false, true}, []bool{ours, theirs})
		})
		waits := eventsOf(t, events, func(ev event.Event) bool {
			return ev.Type == event.Stepped && ev.Step == remediate.Waiting && ev.Reason == reason.PowerForbidden
		})
		assert.Len(t, waits, 1)

		m.Do(func(s *fake.State) { s.LockPower("h-1", false) })
		time.Sleep(3 * time.Minute)
		assert.True(t, w.On())
		r, _ = engine.NewLookup(e).Run("c", r.ID)
		assert.Equal(t, []any{remediate.Aborted, reason.Contested}, []any{r.Step, r.Reason}, r.Note)
		stop()
	})
}

// Somebody else wants the host off before any run: no run begins, and no command is sent, until that is over. // I22
func TestHostOfAnotherRemediatorIsFencedAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.Do(func(s *fake.State) { s.LockPower("h-1", true) })
		e, _, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		require.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Contested).Value, fake.OtherPowerLock)
		assert.Empty(t, w.Commands())
		m.Do(func(s *fake.State) { s.LockPower("h-1", false) })
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}
