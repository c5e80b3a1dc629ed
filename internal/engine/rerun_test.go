package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Runs that end without an action start more and more rarely, and explain says why.
func TestRunsWithoutAnActionBackOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := nodePolicy()
		p.Strategy, p.ShortenOnEvidence = policy.DeleteMachines, true // a run itself reads no BMC for this
		p.Conditions[0].Timeout = time.Hour
		w.SetPower(false)
		w.ownMachines()
		e, _, stop := start(t, w, store, withPolicy(w, p))
		time.Sleep(30 * time.Minute)
		runs := e.Runs("c")
		require.Greater(t, len(runs), 5)
		assert.Less(t, len(runs), 11, "after 10, 20, 40 s and so on")
		assert.Equal(t, remediate.Aborted, runs[0].Step)
		g := gate(t, e, reason.PowerInterval)
		assert.Equal(t, "backOff", g.Name)
		assert.Equal(t, "10m0s", g.Threshold, "and no more seldom than that")
		assert.True(t, g.Until.After(time.Now()))
		stop()
	})
}
