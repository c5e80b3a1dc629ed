package engine

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
)

// Only holds that ended long ago are forgotten, and what another instance has deleted
// is forgotten here, too.
func TestHoldsAreForgottenLongAfterTheirEnd(t *testing.T) {
	s, err := state.OpenBolt(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	long, lately := time.Now().Add(-2*keepRuns).UTC(), time.Now().Add(-time.Hour).UTC()
	for node, h := range map[string]state.Hold{
		"endless":         {At: long},
		"over":            {At: long, Until: long.Add(time.Hour)},
		"released":        {At: long, ReleasedBy: "bea", ReleasedAt: long},
		"just over":       {At: long, Until: lately},
		"just released":   {At: long, Until: long, ReleasedBy: "bea", ReleasedAt: lately},
		"held once more":  {At: long, ReleasedAt: long},
		"over long after": {At: long, Until: time.Now().Add(time.Hour).UTC()},
	} {
		h.Cluster, h.Node, h.By = "c", node, "ada"
		_, err := state.SaveHold(t.Context(), s, h)
		require.NoError(t, err)
	}
	e := &Engine{opt: Options{Store: s}, holds: &holds{all: map[string]state.Hold{}}}
	other := &holds{all: map[string]state.Hold{}}
	require.NoError(t, e.loadHolds(t.Context()))
	for key, h := range e.holds.all {
		other.all[key] = h
	}
	require.NoError(t, other.prune(t.Context(), s, time.Now().Add(-keepRuns)))
	var left []string
	for key := range other.all {
		left = append(left, key)
	}
	assert.ElementsMatch(t, []string{"c/endless", "c/just over", "c/just released", "c/held once more", "c/over long after"}, left)
	require.NoError(t, e.loadHolds(t.Context()))
	assert.Equal(t, other.all, e.holds.all)
	require.NoError(t, e.holds.prune(t.Context(), s, time.Now().Add(-keepRuns)), "another has done it")
}
