package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/scene"
)

// everyPoint are points that a run passes.
var everyPoint = []string{
	"before-write-PowerOff-SetHold", "after-write-PowerOn-ReleaseHold",
	"before-save-run-PowerOff", "before-save-run-PowerOff-SendOff", "before-command-off-PowerOff-device0", "before-save-run-DeleteNode",
	"before-save-backup", "before-save-pin", "before-write-DeleteNode-IsolateNode", "before-save-run-PowerOn", "before-command-on-PowerOn-device0",
	"before-save-run-AwaitNode", "before-save-run-RestoreNode", "before-write-RestoreNode-RestoreNode", "before-save-run-Done",
	"after-save-run-PowerOff-SendOff", "after-command-off-PowerOff-device0", "after-save-backup", "after-write-DeleteNode-IsolateNode",
	"after-command-on-PowerOn-device0", "after-write-RestoreNode-RestoreNode", "after-save-run-Done",
}

// A fenced that dies by SIGKILL before and after each of its saves, commands to BMCs and
// writes to the cluster ends where one ends that lives: one deletion of the Node, by the
// API server's own account, never while the BMC tells anybody that the host is on, and no
// host off without an open run. TestSimulation kills at any call of every way that a run can take.
func TestFencedSurvives(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Workers: []scene.Spec{{Name: "dies", Protocol: scene.Redfish, Metal3: true}, {Name: "healthy", Protocol: scene.IPMI}},
		// Each death voids what was proven, and a command is not repeated at once. The next session is not waited for.
		Set: []string{"power.sessionTimeout=0s", "power.offReadSpacing=1s", "power.offDeadline=3m", "power.onDeadline=2m", "power.podsGoneTimeout=0s"},
	})
	ctx, w, markers := within(t), s.Worker("dies"), t.TempDir()
	wit := watchBMC(t, w)
	watchRecord(t, s, w)
	deaths := keepAlive(ctx, t, s, markers)
	hang(ctx, t, s, w)
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Empty(t, r.Reason)
	assert.Equal(t, "RestoreNode", r.Steps[len(r.Steps)-1].Step)
	requireBack(ctx, t, s, w)
	assert.True(t, w.BMC.Power())
	require.True(t, wit.saidOn())
	wit.requireOffAt(t, requireOneDeletion(t, s, w).Received)
	untouched(ctx, t, s, s.Worker("healthy"))

	n, at := deaths(), died(t, markers)
	assert.Len(t, at, n, "a death for each point")
	assert.False(t, has(at, "before-command-on-unsaved"), "a command that no saved run asks for")
	assert.False(t, has(at, "before-command-off-unsaved"), "a command that no saved run asks for")
	for _, p := range everyPoint {
		assert.True(t, has(at, p), "death at %s; there were %v", p, at)
	}
	t.Logf("%d deaths in %s", n, r.Ended.Sub(r.Started).Round(time.Second))
}

// keepAlive runs the fenced with failpoints and starts it again whenever it has
// killed itself, as systemd would, until the test ends. The function says how
// often that was; it ends the last one first.
func keepAlive(ctx context.Context, t *testing.T, s *scene.Scene, markers string) func() int {
	t.Helper()
	programs, err := builds()
	require.NoError(t, err)
	start := func() (*scene.Daemon, error) {
		return s.Launch(programs.Failpoints, "FENCED_FAILPOINTS="+markers)
	}
	d, err := start()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan int, 1)
	go func() {
		died := 0
		defer func() { ended <- died }()
		for {
			select {
			case <-ctx.Done():
				select {
				case <-d.Done():
					died++ // it was the first to end itself
				default:
					d.Kill()
				}
				return
			case <-d.Done():
			}
			code, _ := d.Wait(context.WithoutCancel(ctx)) // it has ended
			if !assert.True(t, d.Killed(), "fenced ended with status %d instead of being killed\n%s", code, s.LogTail(5)) {
				return
			}
			died++
			if d, err = start(); !assert.NoError(t, err) {
				return
			}
		}
	}()
	count := -1
	stop := func() int {
		cancel()
		if count < 0 {
			count = <-ended
		}
		return count
	}
	t.Cleanup(func() { stop() })
	return stop
}

// killedAt is a directory for FENCED_FAILPOINTS in which only one point kills.
func killedAt(t *testing.T, point string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "only"), []byte(point), 0o600))
	return dir
}

// died lists the points at which fenced killed itself.
func died(t *testing.T, markers string) (names []string) {
	t.Helper()
	for _, e := range must.Do(os.ReadDir(markers))(t) {
		names = append(names, e.Name())
	}
	return names
}

func has(names []string, prefix string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, prefix) })
}

// hang freezes a host that has been silent for longer than the minute in which fenced
// would wait, after each restart anew, whether its Lease moves.
func hang(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	w.Kubelet.Hang()
	renewed := time.Now().Add(-2 * time.Minute).UTC().Format(metav1.RFC3339Micro)
	_, err := s.Cluster.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, w.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, renewed), metav1.PatchOptions{})
	require.NoError(t, err)
}

// watchRecord checks until the test ends that a host which is off has a run that is
// not over, whenever fenced lives to tell. // I20
func watchRecord(t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done, looks := make(chan struct{}), new(atomic.Int64)
	client := api.New(s.Socket())
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			off := !w.BMC.Power()
			status, err := client.Status(ctx)
			if off && err == nil && !w.BMC.Power() {
				looks.Add(1)
				assert.True(t, slices.ContainsFunc(status.Value.Runs, func(r wire.RunStatus) bool { return r.Node == w.Name }),
					"%s is off without an open run", w.Name)
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		assert.Positive(t, looks.Load(), "nobody looked while %s was off", w.Name)
	})
}

func TestShippedBinaryHasNoFailpoints(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs, which -short leaves out")
	}
	programs, err := builds()
	require.NoError(t, err)
	for program, want := range map[string]bool{programs.Fenced: false, programs.Failpoints: true} {
		code, err := os.ReadFile(program)
		require.NoError(t, err)
		assert.Equal(t, want, bytes.Contains(code, []byte("FENCED_FAILPOINTS")), filepath.Base(program))
	}
}

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
