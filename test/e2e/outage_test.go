package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// The API server goes away while the host is off and the Node still stands. The
// host is powered on again without it, and nothing is deleted when it is back.
func TestAPIServerLostWhileOff(t *testing.T) {
	t.Parallel()
	t.Run("during step 1", func(t *testing.T) {
		t.Parallel()
		s, w := outageScene(t)
		_, err := s.StartDaemon(t.Context())
		require.NoError(t, err)
		w.Kubelet.Hang()
		awaitOff(t, w)
		s.Cluster.StopAPIServer()
		requireAbortedOnceBack(t, s, w)
	})
	// Here fenced itself dies too, right after it saved that step 2 begins.
	t.Run("between steps 1 and 2", func(t *testing.T) {
		t.Parallel()
		s, w := outageScene(t)
		programs, err := builds()
		require.NoError(t, err)
		d, err := s.Launch(programs.Failpoints, "FENCED_FAILPOINTS="+killedAt(t, "after-save-run-DeleteNode"))
		require.NoError(t, err)
		w.Kubelet.Hang()
		_, err = d.Wait(within(t))
		require.NoError(t, err)
		require.True(t, d.Killed())
		require.False(t, w.BMC.Power())
		s.Cluster.StopAPIServer()
		_, err = s.StartDaemon(t.Context())
		require.NoError(t, err)
		requireAbortedOnceBack(t, s, w)
	})
}

func outageScene(t *testing.T) (*scene.Scene, *scene.Worker) {
	t.Helper()
	s := set(t, scene.Options{
		Set:     []string{"power.apiTimeout=10s", "power.offDeadline=20s"},
		Workers: []scene.Spec{{Name: "cut-off", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI}},
	})
	return s, s.Worker("cut-off")
}

func awaitOff(t *testing.T, w *scene.Worker) {
	t.Helper()
	require.Eventually(t, func() bool { return !w.BMC.Power() }, patience, 20*time.Millisecond, "%s is off", w.Name)
}

func requireAbortedOnceBack(t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	ctx := within(t)
	require.Eventually(t, w.BMC.Power, patience, 50*time.Millisecond, "the host is powered on while the API server is away")
	r := awaitRun(ctx, t, s, w.Name, func(wire.RunRecord) bool { return true })
	assert.Equal(t, wire.ResultRunning, r.Result, "open until the Node was read again")

	require.NoError(t, s.Cluster.StartAPIServer(ctx))
	r = awaitRun(ctx, t, s, w.Name, func(r wire.RunRecord) bool { return !r.Ended.IsZero() })
	assert.Equal(t, wire.ResultAborted, r.Result)
	assert.Equal(t, "APIUnreachable", r.Reason)
	_, err := s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
	require.NoError(t, err)
	untouched(ctx, t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
}
