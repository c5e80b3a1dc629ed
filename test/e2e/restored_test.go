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
	"github.com/fenced/fenced/test/scene"
)

// TestRestoredState: a daemon with an imported backup of its state takes up the runs that were open
// when the backup was made. The one that is still open brings its host back: it is finished, or rolled
// back while the Lease of the store before still forbids to act. The one that had ended since looks,
// and neither cuts the power of its healthy host nor deletes its Node again.
func TestRestoredState(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Set: []string{"power.offDeadline=20m", "power.readTimeout=1s"},
		Workers: []scene.Spec{
			{Name: "open", Protocol: scene.IPMI}, {Name: "ended", Protocol: scene.IPMI}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
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
	back, err := s.Cluster.WaitNode(ctx, ended.Name, scene.IsReady)
	require.NoError(t, err)
	require.Equal(t, wire.ResultRunning, awaitRun(ctx, t, s, open.Name, result(wire.ResultRunning)).Result)
	d.Kill()

	programs, err := builds()
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(s.Config()), "state.db")))
	said, err := exec.CommandContext(ctx, programs.Fenced, "--config", s.Config(), "--import", backup).CombinedOutput()
	require.NoError(t, err, "%s", said)
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
	require.NoError(t, goBMC(t, open).Hang(false))

	over := func(r wire.RunRecord) bool { return !r.Ended.IsZero() }
	deletions := map[string]int{wire.ResultDone: 1, wire.ResultAborted: 0}
	first := awaitRun(ctx, t, s, open.Name, over)
	assert.Equal(t, runs[open], first.ID)
	require.Contains(t, deletions, first.Result, first.Reason)
	_, err = s.Cluster.WaitNode(ctx, open.Name, scene.IsReady)
	require.NoError(t, err)
	deleted, err := s.Cluster.NodeDeletions(open.Name)
	require.NoError(t, err)
	assert.Len(t, deleted, deletions[first.Result], "a run that is %s", first.Result)
	again := awaitRun(ctx, t, s, ended.Name, over)
	assert.Equal(t, runs[ended], again.ID)
	requireOneDeletion(t, s, ended)
	require.Eventually(t, func() bool {
		st, err := s.Status(ctx)
		return err == nil && len(st.Runs) == 0
	}, patience, 100*time.Millisecond, "no run is open")
	n, err := s.Cluster.WaitNode(ctx, ended.Name, scene.IsReady)
	require.NoError(t, err)
	assert.Equal(t, back.UID, n.UID)
	assert.Equal(t, back.Status.NodeInfo.BootID, n.Status.NodeInfo.BootID, "the host was not switched off again")
	assert.True(t, ended.BMC.Power())
	assert.True(t, open.BMC.Power())
	t.Logf("the run that was open: %s %s; the one that had ended: %s %s %s", first.Result, first.Reason, again.Result, again.Reason, again.Note)
}
