package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// TERM in the middle of a run ends fenced with status 0 and leaves the run to
// the next start; meanwhile no second fenced can take the state.
func TestTermInMidRun(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{{Name: "halfway", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	first, err := s.StartDaemon(ctx)
	require.NoError(t, err)

	programs, err := builds()
	require.NoError(t, err)
	second, err := s.Launch(programs.Fenced)
	require.NoError(t, err)
	code, err := second.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, 1, code, "the state is locked")
	assert.Contains(t, s.LogTail(20), "state.db")
	_, err = s.Status(ctx)
	require.NoError(t, err, "the first one still answers")

	w := s.Worker("halfway")
	w.Kubelet.Hang()
	awaitOff(t, w)
	code, err = first.Terminate(ctx)
	require.NoError(t, err)
	assert.Zero(t, code)
	requireNoDeletion(t, s, w)
	require.False(t, w.BMC.Power(), "the run was in step 1")

	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
}
