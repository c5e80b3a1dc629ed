package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/scene"
)

// TERM in the middle of a run ends fenced with status 0 and leaves the run to
// the next start; meanwhile no second fenced can take the state.
func TestTermInMidRun(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{{Name: "halfway", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	first := must.Do(s.StartDaemon(ctx))(t)

	programs := must.Do(builds())(t)
	second := must.Do(s.Launch(programs.Fenced))(t)
	code := must.Do(second.Wait(ctx))(t)
	assert.Equal(t, 1, code, "the state is locked")
	assert.Contains(t, s.LogTail(20), "state.db")
	_, err := s.Status(ctx)
	require.NoError(t, err, "the first one still answers")

	w := s.Worker("halfway")
	w.Kubelet.Hang()
	awaitOff(t, w)
	code = must.Do(first.Terminate(ctx))(t)
	assert.Zero(t, code)
	requireNoDeletion(t, s, w)
	require.False(t, w.BMC.Power(), "the run was in step 1")

	must.Do(s.StartDaemon(ctx))(t)
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
}

// The API server goes away while a host is off and its Node still stands. The host is powered on again without it, and nothing
// is deleted when it is back. The three stories share a control plane, each with a host and a daemon of its own.
func TestAPIServerLostWhileOff(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Set: []string{"power.offDeadline=20s"},
		Workers: []scene.Spec{
			{Name: "step-1", Protocol: scene.Redfish}, {Name: "step-2", Protocol: scene.Redfish}, {Name: "paused", Protocol: scene.IPMI},
			{Name: "healthy", Protocol: scene.IPMI},
		},
	})
	const givesUpSoon = "FENCED_POWER_APITIMEOUT=10s"
	programs := must.Do(builds())(t)
	t.Run("during step 1", func(t *testing.T) {
		w := s.Worker("step-1")
		d := must.Do(s.Launch(programs.Fenced, givesUpSoon))(t)
		defer d.Kill()
		w.Kubelet.Hang()
		awaitOff(t, w)
		s.Cluster.StopAPIServer()
		requireAbortedOnceBack(t, s, w)
	})
	// Here fenced itself dies too, right after it saved that step 2 begins.
	t.Run("between steps 1 and 2", func(t *testing.T) {
		w := s.Worker("step-2")
		d := must.Do(s.Launch(programs.Failpoints, givesUpSoon, "FENCED_FAILPOINTS="+points(t, "after-save-run-DeleteNode")))(t)
		w.Kubelet.Hang()
		must.Do(d.Wait(within(t)))(t)
		require.True(t, d.Killed())
		require.False(t, w.BMC.Power())
		s.Cluster.StopAPIServer()
		d = must.Do(s.Launch(programs.Fenced, givesUpSoon))(t)
		defer d.Kill()
		requireAbortedOnceBack(t, s, w)
	})
	// It hangs, and people pause: long before the run gives the API up, its host is back On. // I23
	t.Run("paused while it hangs", func(t *testing.T) {
		ctx := within(t)
		w := s.Worker("paused")
		d := must.Do(s.Launch(programs.Fenced))(t)
		defer d.Kill()
		w.Kubelet.Hang()
		switchedOff(ctx, t, s, w)
		require.NoError(t, s.Cluster.FreezeAPIServer())
		require.NoError(t, os.WriteFile(pauseFile(s), nil, 0o600))
		require.Eventually(t, w.BMC.Power, patience, 20*time.Millisecond, "the API is waited for two minutes, a pause is not")
		require.NoError(t, s.Cluster.ThawAPIServer())
		r := awaitRun(ctx, t, s, w.Name, result(wire.ResultAborted))
		assert.Equal(t, "Paused", r.Reason)
		must.Do(s.Cluster.WaitNode(ctx, w.Name, scene.IsReady))(t)
		untouched(ctx, t, s, w)
		untouched(ctx, t, s, s.Worker("healthy"))
	})
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
	must.Do(s.Cluster.WaitNode(ctx, w.Name, scene.IsReady))(t)
	untouched(ctx, t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
}

// TestRestoredState: a daemon with an imported backup of its state takes up the runs that were open
// when the backup was made. The one that is still open brings its host back: it is finished, or rolled
// back while the Lease of the store before still forbids to act. The one that had ended since looks,
// and neither cuts the power of its healthy host nor deletes its Node again.
func TestRestoredState(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Set: []string{"power.offDeadline=20m", "power.readTimeout=1s"},
		Workers: []scene.Spec{
			{Name: "open", Protocol: scene.IPMI}, {Name: "ended", Protocol: scene.IPMI}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	open, ended := s.Worker("open"), s.Worker("ended")
	runs := map[*scene.Worker]string{}
	for _, w := range []*scene.Worker{open, ended} {
		w.Kubelet.Hang()
		awaitOff(t, w)
		require.NoError(t, goBMC(t, w).Hang(true)) // before its off is proven
		runs[w] = awaitRun(ctx, t, s, w.Name, result(wire.ResultRunning)).ID
	}
	backup := filepath.Join(t.TempDir(), "state.ndjson")
	fencectl(ctx, t, s, 0, "export", backup)

	require.NoError(t, goBMC(t, ended).Hang(false))
	awaitRun(ctx, t, s, ended.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, ended)
	back := must.Do(s.Cluster.WaitNode(ctx, ended.Name, scene.IsReady))(t)
	require.Equal(t, wire.ResultRunning, awaitRun(ctx, t, s, open.Name, result(wire.ResultRunning)).Result)
	d.Kill()

	programs := must.Do(builds())(t)
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(s.Config()), "state.db")))
	said, err := exec.CommandContext(ctx, programs.Fenced, "--config", s.Config(), "--import", backup).CombinedOutput()
	require.NoError(t, err, "%s", said)
	must.Do(s.StartDaemon(ctx))(t)
	require.NoError(t, goBMC(t, open).Hang(false))

	over := func(r wire.RunRecord) bool { return !r.Ended.IsZero() }
	deletions := map[string]int{wire.ResultDone: 1, wire.ResultAborted: 0}
	first := awaitRun(ctx, t, s, open.Name, over)
	assert.Equal(t, runs[open], first.ID)
	require.Contains(t, deletions, first.Result, first.Reason)
	must.Do(s.Cluster.WaitNode(ctx, open.Name, scene.IsReady))(t)
	deleted := must.Do(s.Cluster.NodeDeletions(open.Name))(t)
	assert.Len(t, deleted, deletions[first.Result], "a run that is %s", first.Result)
	again := awaitRun(ctx, t, s, ended.Name, over)
	assert.Equal(t, runs[ended], again.ID)
	requireOneDeletion(t, s, ended)
	require.Eventually(t, func() bool {
		st, err := s.Status(ctx)
		return err == nil && len(st.Runs) == 0
	}, patience, 100*time.Millisecond, "no run is open")
	n := must.Do(s.Cluster.WaitNode(ctx, ended.Name, scene.IsReady))(t)
	assert.Equal(t, back.UID, n.UID)
	assert.Equal(t, back.Status.NodeInfo.BootID, n.Status.NodeInfo.BootID, "the host was not switched off again")
	assert.True(t, ended.BMC.Power())
	assert.True(t, open.BMC.Power())
	t.Logf("the run that was open: %s %s; the one that had ended: %s %s %s", first.Result, first.Reason, again.Result, again.Reason, again.Note)
}
