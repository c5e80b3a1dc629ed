package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// A host that comes back as somebody else, and one that may not be given back what it
// wore, are people's; one that wore all that a Node can gets all of it back.
func TestWhatComesBack(t *testing.T) { // I6, I21
	t.Parallel()
	check := scene.Metal("2s")
	check.NodeStartupTimeout = "20s"
	s := set(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "renamed", Protocol: scene.IPMI}, {Name: "other-board", Protocol: scene.Redfish},
			{Name: "full", Protocol: scene.IPMI, Metal3: true}, {Name: "refused", Protocol: scene.IPMI},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{check},
		Set:    []string{"power.nodeReadyTimeout=20s", "power.restoreTimeout=20s", "power.retryInterval=5s"},
	})
	ctx := within(t)
	renamed, board, full, refused := s.Worker("renamed"), s.Worker("other-board"), s.Worker("full"), s.Worker("refused")
	reinstall(t, s, renamed, "new-name", renamed.UUID)
	reinstall(t, s, board, board.Name, "4c4c4544-0042-3510-8054-b4c04f4d3132")
	labels, annotations := wearEverything(ctx, t, s, full)
	allow, err := s.Cluster.Forbid(ctx, refused.Name, scene.WornAnnotation, "no owners here")
	require.NoError(t, err)
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
	for _, w := range s.Workers[:4] {
		w.Kubelet.Hang()
	}

	r := awaitRun(ctx, t, s, board.Name, result(wire.ResultWaiting))
	assert.Equal(t, "TargetChanged", r.Reason, "its BMC has told the truth")
	assert.Contains(t, r.Note, "another machine")

	r = awaitRun(ctx, t, s, refused.Name, result(wire.ResultWaiting))
	assert.Equal(t, "RestoreFailed", r.Reason)
	assert.Contains(t, r.Note, "no owners here")
	require.NoError(t, allow(ctx)) // it goes on by itself
	awaitRun(ctx, t, s, refused.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, refused)

	awaitRun(ctx, t, s, full.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, full)
	n, err := s.Cluster.WaitNode(ctx, full.Name, scene.IsReady)
	require.NoError(t, err)
	for k, v := range labels {
		require.Equal(t, v, n.Labels[k])
	}
	for k, v := range annotations {
		require.Equal(t, v, n.Annotations[k])
	}

	r = awaitRun(ctx, t, s, renamed.Name, result(wire.ResultHeld))
	assert.Equal(t, "NodeRenamed", r.Reason)
	assert.Contains(t, r.Note, "new-name")
	assert.Equal(t, 1, goBMC(t, renamed).Counts().Off, "a host that works is not switched off again")
	for _, w := range s.Workers[:4] {
		requireOneDeletion(t, s, w)
		deleted, err := s.Cluster.Deletions("machines", w.Name)
		require.NoError(t, err)
		assert.Empty(t, deleted, "deletions of Machine %s", w.Name)
	}
	requireNodes(ctx, t, s, "new-name", "healthy-1", "healthy-2")
	untouched(ctx, t, s, s.Worker("healthy-1"))
	untouched(ctx, t, s, s.Worker("healthy-2"))
}

// reinstall lets the host of a worker boot as another Node from now on.
func reinstall(t *testing.T, s *scene.Scene, w *scene.Worker, name, uuid string) {
	t.Helper()
	client, err := s.Cluster.KubeletClient(name)
	require.NoError(t, err)
	w.Kubelet.Reinstall(client, name, uuid)
}

// wearEverything gives a Node labels of the longest keys and values, and annotations of
// as much as one object may have.
func wearEverything(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) (labels, annotations map[string]string) {
	t.Helper()
	labels = map[string]string{}
	domain := strings.Repeat("d", 62) + "."
	for i := range 100 {
		labels[strings.Repeat(domain, 4)+"e/"+fmt.Sprintf("%063d", i)] = strings.Repeat("v", 63)
	}
	annotations = map[string]string{"all-of-it": strings.Repeat("a", 255<<10)}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	require.NoError(t, err)
	_, err = s.Cluster.Client().CoreV1().Nodes().Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	return labels, annotations
}

func requireNodes(ctx context.Context, t *testing.T, s *scene.Scene, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.Cluster.WaitNode(ctx, name, scene.IsReady)
		require.NoError(t, err, name)
	}
}
