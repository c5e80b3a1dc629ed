package stop

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/statetest"
)

const keepRuns = 90 * 24 * time.Hour

// Only holds that ended long ago are deleted. What another instance has deleted leaves the
// cache here as well.
func TestHoldsAreForgottenLongAfterTheirEnd(t *testing.T) {
	s, err := boltstore.Open(filepath.Join(t.TempDir(), "state.db"))
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
		_, err := statetest.SaveHold(t.Context(), s, h)
		require.NoError(t, err)
	}
	open := func() *Stop {
		stops, err := New(t.Context(), Options{Store: s, Emit: func(event.Event) {}})
		require.NoError(t, err)
		return stops
	}
	one, other := open(), open()
	require.NoError(t, other.Prune(t.Context(), s, time.Now().Add(-keepRuns)))
	var left []string
	for _, h := range other.holds.All() {
		left = append(left, h.Key())
	}
	assert.ElementsMatch(t, []string{"c/endless", "c/just over", "c/just released", "c/held once more", "c/over long after"}, left)
	require.NoError(t, one.Load(t.Context()))
	assert.Equal(t, other.holds.All(), one.holds.All())
	require.NoError(t, one.Prune(t.Context(), s, time.Now().Add(-keepRuns)), "another has done it")
}
