// Package e2e runs the built fenced and fencectl as processes against a real
// API server and BMCs that speak the real protocols.
package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// planes are for the first scene of each test. The address of a second one, which ends before the first, is known
// to the first one's fenced.
var (
	planes   rig.Pool
	hasScene sync.Map // by name of the test
)

// builds makes the programs once for all tests of this binary.
var (
	programsDir string
	builds      = sync.OnceValues(func() (scene.Programs, error) {
		return scene.Build(context.Background(), programsDir, true)
	})
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fenced-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programsDir = dir
	pace.Together(9) // a scene waits far more than it computes; other packages' tests need the cores, too
	code := m.Run()
	planes.Stop()
	_ = os.RemoveAll(dir) // left-overs in the temporary directory harm nobody
	os.Exit(code)
}

// set puts a scene on stage until the test ends. When the test fails it keeps the
// scene's logs, says where, and shows the end of fenced's.
func set(t *testing.T, o scene.Options) *scene.Scene {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	var err error
	o.Programs, err = builds()
	require.NoError(t, err)
	if o.GracePeriod == 0 {
		o.GracePeriod = 8 * time.Second // other packages' tests share the two cores
	}
	o.Progress = os.Stderr
	if _, second := hasScene.LoadOrStore(t.Name(), true); !second {
		o.Pool = &planes
		t.Cleanup(func() { hasScene.Delete(t.Name()) })
	}
	s, err := scene.New(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Died())
		if t.Failed() {
			t.Logf("the logs are kept in %s; the end of fenced's:\n%s", s.KeepLogs(), s.LogTail(50))
		}
		s.Stop()
	})
	return s
}

// patience bounds each wait. A busy machine may need minutes; only a hang needs more.
const patience = 8 * time.Minute

// within is a context that ends with the test, or when patience does.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// awaitRun polls the newest run of a node until ok; polls that fail are
// repeated, because the daemon may be restarting.
func awaitRun(ctx context.Context, t *testing.T, s *scene.Scene, node string, ok func(wire.RunRecord) bool) wire.RunRecord {
	t.Helper()
	var last wire.RunRecord
	var lastErr error
	for ctx.Err() == nil {
		runs, err := s.Timeline(ctx, node)
		if lastErr = err; err == nil && len(runs) > 0 {
			last = runs[len(runs)-1]
			if ok(last) {
				return last
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	require.Failf(t, "no such run", "of %s; the last one seen: %+v; last error: %v", node, last, lastErr)
	return last
}

func result(want string) func(wire.RunRecord) bool {
	return func(r wire.RunRecord) bool { return r.Result == want }
}

// requireBack checks that a Node is another than before, and has all it wore.
func requireBack(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	n, err := s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
	require.NoError(t, err)
	assert.NotEqual(t, w.Registered.UID, n.UID, "a new Node registered")
	assert.NotEqual(t, w.Registered.Status.NodeInfo.BootID, n.Status.NodeInfo.BootID)
	assert.Empty(t, w.Undressed(n), "all that the Node wore is back")
}

// requireOneDeletion gives the one deletion of a Node in the audit log.
func requireOneDeletion(t *testing.T, s *scene.Scene, w *scene.Worker) rig.Deletion {
	t.Helper()
	d, err := s.Cluster.NodeDeletions(w.Name)
	require.NoError(t, err)
	require.Len(t, d, 1, "deletions of Node %s in the API server's audit log", w.Name)
	assert.Equal(t, rig.FencedUser, d[0].User)
	assert.Equal(t, string(w.Registered.UID), d[0].UID, "the UID precondition")
	assert.NotEmpty(t, d[0].ResourceVersion, "the resourceVersion precondition")
	return d[0]
}

func requireNoDeletion(t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	d, err := s.Cluster.NodeDeletions(w.Name)
	require.NoError(t, err)
	require.Empty(t, d, "deletions of Node %s in the API server's audit log", w.Name)
}

// untouched checks that a worker that nothing happened to is the same as before.
func untouched(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	n, err := s.Cluster.WaitNode(ctx, w.Name, func(n *corev1.Node) bool { return n != nil })
	require.NoError(t, err)
	assert.Equal(t, w.Registered.UID, n.UID)
	assert.Empty(t, w.Undressed(n))
	requireNoDeletion(t, s, w)
}

func unknown(n *corev1.Node) bool { return rig.ReadyStatus(n) == corev1.ConditionUnknown }

// ignoreOn makes a BMC accept a power on and do nothing, or obey again.
func ignoreOn(w *scene.Worker, ignore bool) {
	w.Service.System(0).Quirks(func(q *redfishsim.Quirks) { q.IgnoreOn = ignore })
}
