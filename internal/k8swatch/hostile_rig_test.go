package k8swatch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// overloaded gives a Node thousands of conditions and addresses, at times that cannot
// be, and a thousand taints.
func overloaded(ctx context.Context, t *testing.T, c *rig.ControlPlane, name string) {
	t.Helper()
	var taints []corev1.Taint
	for i := range 1000 {
		taints = append(taints, corev1.Taint{Key: fmt.Sprint("t-", i), Effect: corev1.TaintEffectNoSchedule})
	}
	_, err := c.CreateNode(ctx, rig.Node{Name: name, Taints: taints})
	require.NoError(t, err)
	times := []metav1.Time{{}, metav1.Unix(-1<<35, 0), metav1.Unix(253402300799, 0), metav1.NewTime(time.Now().Add(100 * 365 * 24 * time.Hour))}
	nodes := c.Client().CoreV1().Nodes()
	k8stest.Until(t, time.Minute, "the status is written, past the conflicts with controllers", func() bool {
		n, err := nodes.Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		for i := range 3000 {
			at := times[i%len(times)]
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprint("C", i)),
				Status: "\x1b[2J", Message: strings.Repeat("m", 100), LastTransitionTime: at, LastHeartbeatTime: at})
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: fmt.Sprint("a-", i, "\r\n")})
		}
		n.Status.NodeInfo = corev1.NodeSystemInfo{}
		_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err == nil
	})
}

// Objects that somebody filled with all that the API server takes harm neither the view
// of the others nor a look at them.
func TestHostileObjectsHarmNoOther(t *testing.T) { // I16
	c, ctx := rigtest.Own(t, rig.Options{}), rigtest.Context(t, 2*time.Minute) // what it makes would burden other tests
	r := bareMetal(t, c, rig.Host{}, rig.Node{SystemUUID: "su"})
	overloaded(ctx, t, c, "hostile")
	annotations := map[string]string{}
	for i := range 12_000 { // with their keys 256 KiB
		annotations[fmt.Sprintf("%020d", i)] = ""
	}
	machine, err := c.CreateMachine(ctx, rig.Machine{Name: "hostile", NodeName: "../../api/v1/nodes/x\x1b[2J"})
	require.NoError(t, err)
	machine.SetAnnotations(annotations)
	machines := c.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace)
	_, err = machines.Update(ctx, machine, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = c.CreateCheck(ctx, rig.Check{Name: "hostile", Strategy: rig.BareMetalStrategy, Conditions: rig.NotReadyFor("1s"), MaxUnhealthy: "100%"})
	require.NoError(t, err)
	expressions := make([]any, 5000)
	for i := range expressions {
		expressions[i] = map[string]any{"key": fmt.Sprint("k-", i), "operator": "DoesNotExist"}
	}
	checks := c.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace)
	check, err := checks.Get(ctx, "hostile", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedSlice(check.Object, expressions, "spec", "selector", "matchExpressions"))
	_, err = checks.Update(ctx, check, metav1.UpdateOptions{})
	require.NoError(t, err)

	k := watching(t, c)
	v := seen(k)
	require.NotNil(t, v.node(r.Target.Node))
	require.NotNil(t, v.machine(r.Target.Machine))
	assert.ErrorContains(t, v[policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "hostile"}].Err, "more than 131072")
	assert.Empty(t, v.machine("hostile").Annotations, "no rule reads them")
	assert.Contains(t, v.check("hostile").Invalid, "5000 entries")
	l := lookAt(t, k, r)
	assert.Equal(t, remediate.Yes, l.Seen.Node.Exists)

	var s policy.Snapshot
	s.Machines = []policy.Machine{*v.machine("hostile")}
	s.Checks = []policy.Check{*v.check("hostile")}
	for _, report := range policy.Decide(s, time.Now()).Checks {
		for _, target := range report.Targets {
			assert.False(t, target.Acts())
		}
	}
	evil := r
	evil.Target.Node, evil.Target.Machine = v.machine("hostile").NodeName, "hostile"
	assert.Error(t, k.Look(ctx, evil, [][]byte{}).Err, "a name that is a path")
}

// What the API server lets a kubelet say about its role, which is what policy believes of it: the Pods of its own Node and
// the label of MicroK8s, and no other label of the control plane, whether it makes its Node or changes it. // I12
func TestKubeletMayNotLabelItsRole(t *testing.T) {
	c, ctx := rigtest.Own(t, rig.Options{Bare: true, NoManager: true, NodeRestriction: true}), rigtest.Context(t, 2*time.Minute)
	for _, name := range []string{"w-1", "w-2"} {
		_, err := c.CreateNode(ctx, rig.Node{Name: name})
		require.NoError(t, err)
	}
	k, err := c.KubeletClient("w-1")
	require.NoError(t, err)
	other, err := c.KubeletClient("w-3")
	require.NoError(t, err)
	for _, label := range policy.ControlPlaneLabels {
		mayBeSet := strings.HasPrefix(label, "node.kubernetes.io/")
		_, err := k.CoreV1().Nodes().Patch(ctx, "w-1", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, label), metav1.PatchOptions{})
		assert.Equal(t, !mayBeSet, apierrors.IsForbidden(err), "%s: %v", label, err)
		_, err = other.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w-3", Labels: map[string]string{label: ""}}}, metav1.CreateOptions{})
		assert.Equal(t, !mayBeSet, apierrors.IsForbidden(err), "%s: %v", label, err)
	}
	n, err := k.CoreV1().Nodes().Get(ctx, "w-1", metav1.GetOptions{})
	require.NoError(t, err)
	for node, allowed := range map[string]bool{"w-1": true, "w-2": false} {
		_, err := k.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + node, Labels: map[string]string{"component": "etcd"}, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: n.UID, Controller: new(true)}}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
		}, metav1.CreateOptions{})
		assert.Equal(t, !allowed, apierrors.IsForbidden(err), "%s: %v", node, err)
	}
}
