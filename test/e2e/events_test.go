package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// described are the Events that `kubectl describe` shows about an object, of fenced alone,
// the first first. About a Node it searches twice: with its UID and with its name. What was
// tried again is left out: a controller may change a Node just when it is restored.
func described(ctx context.Context, t *testing.T, c *rig.ControlPlane, objects ...runtime.Object) []string {
	t.Helper()
	var found []corev1.Event
	for _, o := range objects {
		list, err := c.Client().CoreV1().Events(metav1.NamespaceAll).SearchWithContext(ctx, scheme.Scheme, o)
		require.NoError(t, err)
		found = append(found, list.Items...)
	}
	found = slices.DeleteFunc(found, func(e corev1.Event) bool { return e.Source.Component != "fenced" || e.Reason == "ActionFailed" })
	slices.SortStableFunc(found, func(a, b corev1.Event) int {
		return strings.Compare(a.Name[strings.LastIndex(a.Name, ".")+1:], b.Name[strings.LastIndex(b.Name, ".")+1:]) // when it happened, in nanoseconds
	})
	var texts []string
	for i := range found {
		texts = append(texts, found[i].Type+" "+found[i].Reason)
	}
	return texts
}

// ofRuns are the Events about runs. Before a run begins, a gate may refuse it for a moment.
func ofRuns(events []string) []string {
	return slices.DeleteFunc(events, func(e string) bool { return e == "Warning RemediationSkipped" })
}

// describedNode is what `kubectl describe node` shows of fenced.
func describedNode(ctx context.Context, t *testing.T, c *rig.ControlPlane, name string) []string {
	t.Helper()
	n, err := c.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	byName := n.DeepCopy()
	byName.UID = types.UID(name)
	return described(ctx, t, c, n, byName)
}

func machineObject(ctx context.Context, t *testing.T, s *scene.Scene, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := s.Cluster.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	return obj
}

// nodeCourse is what is reported on a Node of a run without an accident.
var nodeCourse = []string{"Normal RemediationStarted", "Normal HostPoweredOff", "Normal NodeDeleted", "Normal HostPoweredOn", "Normal NodeRegistered", "Normal RemediationFinished"}

// Who describes the Node, its Machine or the check sees the whole course of a fence, and why
// a held Node is not fenced.
func TestEventsTellOfAFence(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "hung", Protocol: scene.IPMI}, {Name: "held", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	fencectl(ctx, t, s, 0, "hold", "held", "--reason", "its disk is being replaced")
	s.Worker("held").Kubelet.Hang()
	awaitRefusal(ctx, t, s, "held", "Hold")
	s.Worker("hung").Kubelet.Hang()
	awaitRun(ctx, t, s, "hung", result(wire.ResultDone))
	requireBack(ctx, t, s, s.Worker("hung"))

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, nodeCourse, ofRuns(describedNode(ctx, t, s.Cluster, "hung")))
		onMachine := append([]string{"Normal ExternalAnnotationAdded"}, nodeCourse[1:]...)
		assert.Equal(c, onMachine, ofRuns(described(ctx, t, s.Cluster, machineObject(ctx, t, s, "hung"))))
		assert.Equal(c, []string{nodeCourse[0], nodeCourse[5]}, described(ctx, t, s.Cluster, checkObject(ctx, t, s)))
		assert.Contains(c, describedNode(ctx, t, s.Cluster, "held"), "Warning RemediationSkipped")
		assert.Contains(c, described(ctx, t, s.Cluster, machineObject(ctx, t, s, "held")), "Warning RemediationSkipped")
	}, patience, 200*time.Millisecond)
	assert.Empty(t, describedNode(ctx, t, s.Cluster, "healthy"))
	list, err := s.Cluster.Client().CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=RemediationSkipped,involvedObject.name=held"})
	require.NoError(t, err)
	require.NotEmpty(t, list.Items)
	assert.Contains(t, list.Items[0].Message, "Hold: ")
	assert.Contains(t, list.Items[0].Message, "its disk is being replaced")
}

// Without the right to write Events, and the right to mark, everything is fenced as before,
// and the journal names what is missing, once.
func TestFenceWithoutTheRightToTell(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	roles := s.Cluster.Client().RbacV1().ClusterRoles()
	for _, name := range []string{"fenced", "fenced-management"} {
		role, err := roles.Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		for i, r := range role.Rules {
			if slices.Contains(r.Resources, "machines") {
				role.Rules[i].Verbs = slices.DeleteFunc(r.Verbs, func(v string) bool { return v == "patch" })
			}
		}
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") || len(r.Verbs) == 0 })
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	assert.Empty(t, describedNode(ctx, t, s.Cluster, w.Name))
	for _, once := range []string{"Kubernetes Events cannot be written", "mark what is being remediated"} {
		assert.Equal(t, 1, strings.Count(s.LogTail(100000), once), once)
	}
}
