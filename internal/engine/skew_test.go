package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

func (w *world) setSkew(by time.Duration) { w.Do(func(s *fake.State) { s.Skew = by }) }

// If a clock is found to be wrong during a run, nothing destructive is done: a host that
// is off is powered on, and the run starts again when the clock is right. // I16
func TestWrongClockBringsTheHostBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		until(t, e, remediate.PowerOff)
		for w.On() {
			time.Sleep(100 * time.Millisecond)
		}
		w.setSkew(-time.Hour)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.PowerOn, r.Step, "nobody can tell how long it has read On")
		assert.Equal(t, string(reason.ClockSkew), string(r.Reason))
		assert.Contains(t, r.Note, "this clock and the API server's differ by 1h0m0s")
		assert.True(t, w.On())
		w.Hang()
		time.Sleep(30 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		assert.NotEmpty(t, gate(t, e, reason.ClockSkew).Value)
		assert.Zero(t, w.Isolations())
		w.setSkew(0)
		time.Sleep(30 * time.Minute)
		runs := e.Runs("c")
		if assert.Len(t, runs, 2) {
			assert.ElementsMatch(t, []remediate.Step{remediate.Aborted, remediate.Done}, []remediate.Step{runs[0].Step, runs[1].Step})
		}
		assert.Equal(t, 1, w.Isolations())
		assert.True(t, w.Ready())
		stop()
	})
}

// If a clock becomes wrong while the host boots, the run neither deletes the Machine nor
// cycles the host again while that lasts. Afterwards the host has its whole
// time. // I14, I16
func TestWrongClockDeletesNoMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		w.SetBootTime(3 * time.Hour)
		e, _, stop := start(t, w, store, nil)
		until(t, e, remediate.AwaitNode)
		w.setSkew(time.Hour)
		time.Sleep(2 * time.Hour)
		r := only(t, e)
		assert.Equal(t, remediate.AwaitNode, r.Step)
		assert.Equal(t, 1, r.Attempt)
		assert.True(t, r.WrongClock)
		w.setSkew(0)
		time.Sleep(9 * time.Minute)
		assert.Equal(t, remediate.AwaitNode, only(t, e).Step)
		assert.False(t, only(t, e).WrongClock)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 2, only(t, e).Attempt)
		assert.Empty(t, w.Deprovisioned())
		stop()
	})
}
