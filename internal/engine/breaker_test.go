package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/wire"
)

// relapsing lets a Node fall silent again shortly after each recovery, until it is
// stopped; not so soon that a run could miss that the Node was well.
func relapsing(t *testing.T, w *world) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			time.Sleep(30 * time.Second)
			if w.ReadyFor() > 10*time.Second {
				w.Hang()
			}
		}
	}()
	return func() { cancel(); <-done }
}

func twiceADay(o *engine.Options) { o.Guards.MaxFencesPerDay = 2 }

// A host with too many runs in a day is quarantined for a day. A restart does not end the
// quarantine; time and people do. // I15
func TestHostWithTooManyRunsIsQuarantined(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		defer relapsing(t, w)()
		_, events, stop := start(t, w, store, twiceADay)
		time.Sleep(time.Hour)
		stop()
		assert.Contains(t, refusals(t, events), string(reason.Quarantined))
		holds, err := statetest.LoadHolds(t.Context(), store)
		require.NoError(t, err)
		require.Len(t, holds, 1)
		h := holds[0]
		assert.True(t, h.Quarantine)
		assert.Equal(t, 24*time.Hour, h.Until.Sub(h.At))

		time.Sleep(time.Until(h.Until) - 5*time.Minute) // nobody runs: each second of a day would cost its rounds
		e, _, stop := start(t, w, store, twiceADay)
		time.Sleep(4 * time.Minute)
		require.Len(t, e.Runs("c"), 2)
		g := gate(t, e, reason.Quarantined)
		assert.Equal(t, h.Until, g.Until.UTC())
		time.Sleep(30 * time.Minute)
		assert.Len(t, e.Runs("c"), 4, "a new day, and no more than that")
		holds, err = statetest.LoadHolds(t.Context(), store)
		require.NoError(t, err)
		assert.True(t, holds[0].At.After(h.Until), "and quarantined anew")
		stop()
	})
}

// After a release by a person the count of the day starts again. A quarantine does not
// stop an order from a person. // I15
func TestQuarantineIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		defer relapsing(t, w)()
		e, _, stop := start(t, w, store, twiceADay)
		time.Sleep(time.Hour)
		gate(t, e, reason.Quarantined)
		_, err := e.ReleaseHold(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "new disk"})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		stop()
		e, _, stop = start(t, w, store, twiceADay)
		time.Sleep(time.Hour)
		require.Len(t, e.Runs("c"), 4, "two more")
		gate(t, e, reason.Quarantined)
		_, err = e.Fence(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "once more"})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.Len(t, e.Runs("c"), 5)
		stop()
	})
}

// A quarantine does not replace a hold by a person.
func TestQuarantineDoesNotReplaceAHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		defer relapsing(t, w)()
		e, _, stop := start(t, w, store, twiceADay)
		time.Sleep(3 * time.Minute)
		_, err := e.Hold(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "disk", For: wire.Span(48 * time.Hour)})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		gate(t, e, reason.Hold)
		for _, h := range e.Holds("c") {
			assert.False(t, h.Quarantine)
		}
		stop()
	})
}

// ended is a run on record that touched n-1 and ended.
func ended(t *testing.T, store state.Store, n int, ago time.Duration, step remediate.Step) {
	t.Helper()
	at := time.Now().Add(-ago).UTC()
	r := remediate.Begin(remediate.Run{ID: fmt.Sprint("r", n), Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "n-1"}}, at.Add(-time.Minute))
	r.Step, r.Ended, r.Intervened = step, at, true
	_, err := state.SaveRun(t.Context(), store, r)
	require.NoError(t, err)
}

// The wait between runs that fail doubles. // I15
func TestFailedRunsBackOff(t *testing.T) {
	interval := func(o *engine.Options) { o.Guards.MinPowerInterval = 20 * time.Minute }
	for name, c := range map[string]struct {
		ends []remediate.Step // a minute ago, two minutes ago ...
		want time.Duration
	}{
		"one that went well":     {[]remediate.Step{remediate.Done}, 20 * time.Minute},
		"one that did not":       {[]remediate.Step{remediate.Aborted}, 20 * time.Minute},
		"two":                    {[]remediate.Step{remediate.Aborted, remediate.Reprovisioned}, 40 * time.Minute},
		"three":                  {[]remediate.Step{remediate.Aborted, remediate.Aborted, remediate.Aborted}, 80 * time.Minute},
		"since one that did":     {[]remediate.Step{remediate.Aborted, remediate.Aborted, remediate.Done, remediate.Aborted}, 40 * time.Minute},
		"before one that did":    {[]remediate.Step{remediate.Done, remediate.Aborted, remediate.Aborted}, 20 * time.Minute},
		"and nothing before now": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				for i, step := range c.ends {
					ended(t, store, i, time.Duration(i+1)*time.Minute, step)
				}
				e, _, stop := start(t, w, store, interval)
				begun := time.Now()
				for len(e.Runs("c")) == len(c.ends) && time.Since(begun) < 3*time.Hour {
					time.Sleep(time.Second)
				}
				waited := time.Since(begun) + time.Minute // since the newest ended
				assert.InDelta(t, max(c.want, 2*time.Minute).Seconds(), waited.Seconds(), 15)
				stop()
			})
		})
	}
}

// An hour of Ready after a run resets the back-off.
func TestHealthyHourResetsTheBackoff(t *testing.T) {
	for _, healthy := range []time.Duration{50 * time.Minute, 70 * time.Minute} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady("True")
			for i := range 3 {
				ended(t, store, i, time.Duration(i+1)*time.Minute, remediate.Aborted)
			}
			e, _, stop := start(t, w, store, func(o *engine.Options) { o.Guards.MinPowerInterval = 30 * time.Minute })
			time.Sleep(healthy)
			w.Hang()
			time.Sleep(3 * time.Minute)
			assert.Equal(t, healthy >= time.Hour, len(e.Runs("c")) > 3, "after %s", healthy)
			stop()
		})
	}
}
