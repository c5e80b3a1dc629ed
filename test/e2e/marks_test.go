package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// marksOf are fenced's marks among annotations: run, step and instance.
func marksOf(annotations map[string]string) [3]string {
	return [3]string{annotations["fenced.io/run"], annotations["fenced.io/step"], annotations["fenced.io/instance"]}
}

func nodeMarks(ctx context.Context, s *scene.Scene, name string) [3]string {
	n, err := s.Cluster.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return [3]string{"unread"}
	}
	return marksOf(n.Annotations)
}

// While a run lasts, its Node and its Machine say so, also after fenced was killed in the
// middle; then nothing of it is left, and neither is what an earlier fenced left behind.
func TestMarksOfARun(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	left := []byte(`{"metadata":{"annotations":{"fenced.io/run":"left-behind","fenced.io/step":"PowerOn"}}}`)
	_, err := s.Cluster.Client().CoreV1().Nodes().Patch(ctx, "healthy", types.MergePatchType, left, metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = s.Cluster.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Patch(ctx, "healthy", types.MergePatchType, left, metav1.PatchOptions{})
	require.NoError(t, err)
	first, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	none := [3]string{}
	require.Eventually(t, func() bool {
		return nodeMarks(ctx, s, "healthy") == none && marksOf(machineObject(ctx, t, s, "healthy").GetAnnotations()) == none
	}, patience, 100*time.Millisecond, "what was left behind is removed")

	w := s.Worker("hung")
	w.Kubelet.Hang()
	var onNode [3]string
	require.Eventually(t, func() bool { onNode = nodeMarks(ctx, s, w.Name); return onNode[0] != "" && onNode[0] != "unread" }, patience, 20*time.Millisecond)
	assert.Equal(t, [2]string{"PowerOff", scene.Instance}, [2]string(onNode[1:]))
	var onMachine [3]string
	require.Eventually(t, func() bool {
		onMachine = marksOf(machineObject(ctx, t, s, w.Name).GetAnnotations())
		return onMachine[0] != ""
	}, patience, 20*time.Millisecond)
	assert.Equal(t, [2]string{onNode[0], scene.Instance}, [2]string{onMachine[0], onMachine[2]})
	awaitOff(t, w)
	first.Kill()
	assert.Equal(t, onNode[0], marksOf(machineObject(ctx, t, s, w.Name).GetAnnotations())[0], "it outlasts the daemon")

	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, onNode[0], r.ID)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	require.Eventually(t, func() bool {
		return nodeMarks(ctx, s, w.Name) == none && marksOf(machineObject(ctx, t, s, w.Name).GetAnnotations()) == none
	}, patience, 100*time.Millisecond, "the marks go with the run")
}
