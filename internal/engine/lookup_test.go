package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
)

// What is reported in the cluster is looked up by name: a run also after its end, and an
// object only while the view has it.
func TestLookup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		defer stop()
		time.Sleep(5 * time.Minute)
		look, r := engine.NewLookup(e), only(t, e)
		require.Equal(t, remediate.Done, r.Step)
		found, known := look.Run("c", r.ID)
		assert.True(t, known)
		assert.Equal(t, r, found)
		now, there := look.Target("c", r.Target.Node, "")
		assert.True(t, there)
		assert.Equal(t, r.NewNodeUID, now.NodeUID)
		uid, machine := look.Present("c", r.Target)
		assert.Equal(t, r.NewNodeUID, uid)
		assert.Equal(t, r.Target.Machine != "", machine)

		_, known = look.Run("c", "r-0")
		assert.False(t, known)
		_, there = look.Target("c", "", "ns/no-such-machine")
		assert.False(t, there)
		_, known = look.Run("another", r.ID)
		_, there = look.Target("another", r.Target.Node, "")
		uid, machine = look.Present("another", r.Target)
		assert.Equal(t, []any{false, false, "", false}, []any{known, there, uid, machine})
	})
}
