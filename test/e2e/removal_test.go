package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// TestNothingIsLeftBehind takes the steps of docs/upgrade.md with which fenced is removed: after them
// no object carries a finalizer, an annotation, a taint or a lock of fenced. Its Lease is left.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	s := clusterAPIScene(t, scene.Options{
		Apart: true, Mode: "respond",
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy", Protocol: scene.Redfish, Metal3: true},
			{Name: "healthy-2", Protocol: scene.IPMI, Metal3: true}},
	})
	ctx := within(t)
	q := newRequester(ctx, t, s.Management)
	require.NoError(t, s.Management.Apply(ctx, documented(t, "cluster-api")))
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	_, err = s.Cluster.WaitNode(ctx, w.Name, unknown)
	require.NoError(t, err)
	q.ofMachine(ctx, t, w.Name)
	awaitOff(t, w)
	during := marks(ctx, t, s)
	require.NotEmpty(t, during, "what is searched for is found in mid-run")
	root, err := rig.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "upgrade.md"))
	require.NoError(t, err)
	for _, mark := range during {
		assert.Contains(t, string(page), "`"+mark+"`", "what a stop in mid-run leaves behind")
	}

	q.remove(ctx, t, w.Name) // before the pause: a paused fenced writes nothing to requests
	q.awaitGone(ctx, t, w.Name)
	fencectl(ctx, t, s, 0, "pause", "--reason", "fenced is removed")
	require.Eventually(t, func() bool {
		st, err := s.Status(ctx)
		return err == nil && len(st.Runs) == 0
	}, patience, 100*time.Millisecond, "no run is open")
	over := awaitRun(ctx, t, s, w.Name, func(r wire.RunRecord) bool { return !r.Ended.IsZero() })
	assert.Contains(t, []string{wire.ResultDone, wire.ResultAborted}, over.Result)
	assert.True(t, w.BMC.Power())
	require.Eventually(t, func() bool { return len(marks(ctx, t, s)) == 0 }, patience, 100*time.Millisecond, "fenced cleans up after the run")
	_, err = d.Terminate(ctx)
	require.NoError(t, err)

	assert.Empty(t, marks(ctx, t, s), "and writes nothing when it stops")
	leases, err := s.Cluster.Client().CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	var left []string
	for i := range leases.Items {
		if l := &leases.Items[i]; strings.Contains(text(t, l.ObjectMeta)+text(t, l.Spec), "fenced") {
			left = append(left, l.Namespace+"/"+l.Name)
		}
	}
	assert.Equal(t, []string{"kube-system/fenced"}, left)
}

// mark is what fenced writes on an object.
var mark = regexp.MustCompile(`\b(fenced\.io/[\w-]+|reboot\.metal3\.io/fenced|node\.kubernetes\.io/out-of-service)`)

// marks are what of fenced is on any object.
func marks(ctx context.Context, t *testing.T, s *scene.Scene) (found []string) {
	t.Helper()
	for _, in := range []struct {
		on   *rig.ControlPlane
		what schema.GroupVersionResource
	}{
		{s.Cluster, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}},
		{s.Management, rig.CAPIResource("v1beta2", "machines")},
		{s.Management, rig.HostResource},
		{s.Management, requestResource},
	} {
		list, err := in.on.Dynamic().Resource(in.what).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		for _, o := range list.Items {
			carried := text(t, o.GetAnnotations()) + text(t, o.GetFinalizers()) + text(t, o.Object["spec"])
			found = append(found, mark.FindAllString(carried, -1)...)
		}
	}
	return found
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}
