package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
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
