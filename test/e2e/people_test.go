package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// switchedOff waits until a run has switched the host off, which is long before the Node
// is isolated: its Lease must stand still first.
func switchedOff(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) wire.RunRecord {
	t.Helper()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultRunning))
	require.Eventually(t, func() bool { return !w.BMC.Power() }, patience, 20*time.Millisecond)
	requireNoDeletion(t, s, w)
	return r
}

// A held Node is left alone until it is released, a file pauses a run in its middle,
// and another is aborted: their hosts are back On and their Nodes were never deleted.
func TestPeopleStopRuns(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "held", Protocol: scene.IPMI}, {Name: "paused", Protocol: scene.Redfish}, {Name: "aborted", Protocol: scene.IPMI, Metal3: true},
		{Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	held, paused, aborted := s.Worker("held"), s.Worker("paused"), s.Worker("aborted")

	fencectl(ctx, t, s, 0, "hold", held.Name, "--reason", "ticket 4711", "--for", "1h")
	held.Kubelet.Hang()
	paused.Kubelet.Hang()
	switchedOff(ctx, t, s, paused)
	code := filepath.Join(t.TempDir(), "reason") // the file is to be there whole
	require.NoError(t, os.WriteFile(code, []byte("smoke in the hall\n"), 0o600))
	require.NoError(t, os.Rename(code, pauseFile(s)))
	r := awaitRun(ctx, t, s, paused.Name, result(wire.ResultAborted))
	assert.Equal(t, "Paused", r.Reason)
	assert.Contains(t, r.Note, "smoke in the hall")
	assert.True(t, paused.BMC.Power())
	st := requireStatus(ctx, t, s, 2)
	assert.Contains(t, st.PausedReason, "smoke in the hall")
	require.NoError(t, os.Remove(pauseFile(s)))

	aborted.Kubelet.Hang()
	r = switchedOff(ctx, t, s, aborted)
	out := fencectl(ctx, t, s, 0, "abort", r.ID, "--reason", "wrong node", "--wait")
	assert.Contains(t, out.Stdout, "Aborted")
	assert.True(t, aborted.BMC.Power())
	awaitText(ctx, t, s, 0, `^20\S+Z +Order +`+r.ID+` +- +.* aborts: wrong node$`, "timeline", aborted.Name, "-o", "wide")
	for _, w := range []*scene.Worker{paused, aborted} {
		_, err := s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
		require.NoError(t, err)
		untouched(ctx, t, s, w)
	}

	st = requireStatus(ctx, t, s, 2)
	require.Len(t, st.Blocked, 1, "a held Node that is not healthy is not remediated")
	assert.Equal(t, held.Name+" Hold", st.Blocked[0].Node+" "+st.Blocked[0].Reason)
	require.Len(t, st.Clusters[0].Holds, 1)
	assert.Equal(t, "ticket 4711", st.Clusters[0].Holds[0].Reason)
	x, err := s.Explain(ctx, held.Name)
	require.NoError(t, err)
	assert.Equal(t, "Hold", x.Refused)
	assert.Zero(t, held.FirstAsked(), "nobody asked the BMC of a held host")
	fencectl(ctx, t, s, 0, "release", held.Name, "--reason", "disk replaced")
	awaitRun(ctx, t, s, held.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, held)
	untouched(ctx, t, s, s.Worker("healthy"))
}

// The file pauses without the API server, which hangs: long before the run gives the
// API up, its host is back On. // I23
func TestPauseFileWhileTheAPIServerHangs(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{{Name: "paused", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("paused")
	w.Kubelet.Hang()
	switchedOff(ctx, t, s, w)
	require.NoError(t, s.Cluster.FreezeAPIServer())
	require.NoError(t, os.WriteFile(pauseFile(s), nil, 0o600))
	require.Eventually(t, w.BMC.Power, patience, 20*time.Millisecond, "the API is waited for two minutes, a pause is not")
	require.NoError(t, s.Cluster.ThawAPIServer())
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultAborted))
	assert.Equal(t, "Paused", r.Reason)
	_, err = s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
	require.NoError(t, err)
	untouched(ctx, t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
}

func pauseFile(s *scene.Scene) string { return filepath.Join(filepath.Dir(s.Config()), "paused") }

// A person vouches for a host whose BMC is dead; the word is marked for ever, and not
// taken where a BMC says otherwise. // I26
func TestPeopleConfirmOff(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "dead", Protocol: scene.IPMI}, {Name: "alive", Protocol: scene.IPMI},
	}, Set: []string{"power.offDeadline=20s"}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	dead, alive := s.Worker("dead"), s.Worker("alive")
	refused := fencectl(ctx, t, s, 3, "confirm-off", alive.Name, "--yes", "--reason", "mains pulled")
	assert.Contains(t, refused.Stderr, "ConfirmedOffContradicted")
	assert.Contains(t, refused.Stderr, "reads On")
	log := filepath.Join(filepath.Dir(s.Config()), "audit.jsonl")
	require.Eventually(t, func() bool {
		all := entriesOf(t, log, alive.Name)
		return len(all) > 0 && all[0].Reason == "ConfirmedOffContradicted" && all[0].Why == "mains pulled" && all[0].Actor != ""
	}, patience, 50*time.Millisecond, "who was refused is on record")

	dead.Silence()
	dead.Kubelet.Hang()
	_, err = s.Cluster.WaitNode(ctx, dead.Name, unknown)
	require.NoError(t, err)
	known := fencectl(ctx, t, s, 0, "confirm-off", dead.Name, "--dry-run", "--reason", "mains pulled")
	assert.Contains(t, known.Stdout, "cannot be read")
	assert.Contains(t, known.Stdout, "lease: renewed")
	out := fencectl(ctx, t, s, 0, "confirm-off", dead.Name, "--yes", "--wait", "--reason", "mains pulled")
	assert.Contains(t, out.Stdout, "ConfirmedOff")
	requireOneDeletion(t, s, dead)
	runs, err := s.Timeline(ctx, dead.Name)
	require.NoError(t, err)
	r := runs[len(runs)-1]
	assert.Equal(t, "Human", r.Proof)
	assert.Contains(t, r.ConfirmedBy, "uid")
	assert.Equal(t, "mains pulled", r.ConfirmedReason)
	untouched(ctx, t, s, alive)
}
