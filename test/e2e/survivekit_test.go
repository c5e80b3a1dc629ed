package e2e

import (
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
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/scene"
)

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

// points is a directory of markers; only points that match one of the patterns kill,
// all of them if there is none.
func points(t *testing.T, only ...string) string {
	t.Helper()
	dir := t.TempDir()
	if len(only) > 0 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "only"), []byte(strings.Join(only, "\n")), 0o600))
	}
	return dir
}

// forEachNode lets a coin decide at the points of each Node; the seed decides how it
// falls.
func forEachNode(t *testing.T, markers string) {
	t.Helper()
	dice.Say(t)
	require.NoError(t, os.WriteFile(filepath.Join(markers, "each"), fmt.Append(nil, dice.Seed()), 0o600))
}

// died lists the points at which fenced killed itself.
func died(t *testing.T, markers string) []string {
	t.Helper()
	entries, err := os.ReadDir(markers)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(markers, e.Name()))
		require.NoError(t, err)
		if len(text) == 0 && e.Name() != "each" {
			names = append(names, e.Name())
		}
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

// insist repeats an order until a fenced that lives long enough has taken it.
func insist(ctx context.Context, t *testing.T, s *scene.Scene, args ...string) {
	t.Helper()
	var last scene.Result
	for ctx.Err() == nil {
		r, err := s.Fencectl(ctx, args...)
		if last = r; err == nil && r.Exit == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Failf(t, "the order was not taken", "fencectl %v: %+v", args, last)
}

// watchRecord checks until the test ends that a host which is off has a run that is
// not over, whenever fenced lives to tell; finished ends the watch. // I20
func watchRecord(t *testing.T, s *scene.Scene, w *scene.Worker) (finished func()) {
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
	finished = func() { cancel(); <-done }
	t.Cleanup(func() {
		finished()
		assert.Positive(t, looks.Load(), "nobody looked while %s was off", w.Name)
	})
	return finished
}
