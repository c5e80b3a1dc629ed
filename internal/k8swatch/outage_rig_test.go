package k8swatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// The API server is killed and comes back; it hangs and goes on. Each time the
// view grows old, says so, and returns without a restart of ours. // I16
func TestViewGrowsOldInAnOutageAndReturns(t *testing.T) {
	c := rigtest.Own(t, rig.Options{})
	ctx := rigtest.Context(t, 2*time.Minute)
	_, err := c.CreateNode(ctx, rig.Node{Name: "before"})
	require.NoError(t, err)
	k := watching(t, c)
	until(t, time.Minute, "the Node is seen", func() bool { return seen(k).node("before") != nil })

	c.StopAPIServer()
	until(t, time.Minute, "the view is old, and says why", func() bool { return k.View().Age > 6*time.Second && k.View().Problem != "" })
	assert.NotNil(t, seen(k).node("before"), "what is old is still there")
	l := k.Look(ctx, remediate.Run{Target: remediate.Target{Node: "before"}}, nil)
	assert.Equal(t, remediate.APIUnreachable, l.Seen.API)
	assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists)

	require.NoError(t, c.StartAPIServer(ctx))
	_, err = c.CreateNode(ctx, rig.Node{Name: "after"})
	require.NoError(t, err)
	until(t, time.Minute, "the view is back", func() bool {
		return seen(k).node("after") != nil && k.View().Age < 3*time.Second && k.View().Problem == ""
	})

	require.NoError(t, c.FreezeAPIServer())
	until(t, time.Minute, "a hanging API server makes the view old", func() bool { return k.View().Age > 6*time.Second })
	require.NoError(t, c.ThawAPIServer())
	until(t, time.Minute, "the view is back", func() bool { return k.View().Age < 3*time.Second && k.View().Problem == "" })
}
