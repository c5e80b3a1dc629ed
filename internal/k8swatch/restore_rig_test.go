package k8swatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// longKey is a key of 253 + 1 + 63 characters, as long as they may be.
func longKey(i int) string {
	domain := strings.Repeat("d", 49)
	prefix := strings.Join([]string{domain, domain, domain, domain, strings.Repeat("e", 53)}, ".")
	return prefix + "/" + fmt.Sprintf("%063d", i)
}

// atLimits is what the API server takes on one Node: labels of the longest keys and
// values, and annotations of 256 KiB together.
func atLimits() (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	for i := range 200 {
		labels[longKey(i)] = strings.Repeat("v", 63)
	}
	left := 256 << 10
	for i := range 4 {
		annotations[longKey(i)] = strings.Repeat("\"<&>\\\n", 10<<10/6)
		left -= len(longKey(i)) + len(annotations[longKey(i)])
	}
	annotations["rest"] = strings.Repeat("r", left-len("rest"))
	return labels, annotations
}

// grow makes a Node as large as etcd takes it, by the images that it reports.
func grow(ctx context.Context, t *testing.T, c *rig.ControlPlane, name string) {
	t.Helper()
	nodes := c.Client().CoreV1().Nodes()
	for size := 900 << 10; ; size -= 50 << 10 {
		n, err := nodes.Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		n.Status.Images = nil
		for range size / (10 << 10) {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{strings.Repeat("i", 10<<10)}})
		}
		if _, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{}); err == nil {
			return
		}
		require.NotZero(t, size, "%v", err)
	}
}

// A Node as large as one can be is saved whole, and all that it wore comes back.
func TestNodeAtItsLimitsComesBack(t *testing.T) { // I21
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	labels, annotations := atLimits()
	r := bareMetal(t, c, rig.Host{}, rig.Node{Labels: labels, Annotations: annotations})
	grow(ctx, t, c, r.Target.Node)
	backup, _ := isolate(t, k, r)
	require.Greater(t, len(backup), 1<<20)
	require.LessOrEqual(t, len(backup), 29<<20/10)
	var old corev1.Node
	require.NoError(t, json.Unmarshal(backup, &old))
	assert.NotEmpty(t, old.Status.Images)

	fresh := must.Do(c.CreateNode(ctx, rig.Node{Name: r.Target.Node}))(t)
	r.NewNodeUID = string(fresh.UID)
	k8stest.Until(t, "restored", func() bool {
		return restored(ctx, k, r, backup) == nil
	})
	require.Equal(t, remediate.Yes, lookAt(t, k, r, backup).Seen.Restored)
	n := must.Do(c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
	for key, v := range labels {
		require.Equal(t, v, n.Labels[key])
	}
	for key, v := range annotations {
		require.Equal(t, v, n.Annotations[key])
	}
}

// What the kubelet and controllers write themselves is left to them, and the Node's
// other fields are not fenced's.
func TestRestoreLeavesWhatOthersOwn(t *testing.T) { // I21
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	theirs := map[string]string{"k8s.ovn.org/node-subnets": "10.1.0.0/24", "network.cilium.io/ipv4-pod-cidr": "10.1.0.0/24",
		"flannel.alpha.coreos.com/backend-data": "{}", "projectcalico.org/IPv4VXLANTunnelAddr": "10.1.0.1", "node.alpha.kubernetes.io/ttl": "15"}
	ours := map[string]string{"flannel.alpha.coreos.com/public-ip-overwrite": "192.0.2.7", "projectcalico.org/ASNumber": "64512",
		"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1", "cluster.x-k8s.io/machine": "m"}
	labels := map[string]string{"k8s.ovn.org/egress-assignable": "", "topology.kubernetes.io/zone": "rack-1",
		"node.kubernetes.io/instance-type": "r640", "node.kubernetes.io/exclude-from-external-load-balancers": ""}
	keep := corev1.Taint{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}
	r := bareMetal(t, c, rig.Host{}, rig.Node{Labels: joinedMaps(labels, map[string]string{"kubernetes.io/arch": "vax"}), Annotations: joinedMaps(theirs, ours), Taints: []corev1.Taint{
		keep, {Key: "medik8s.io/remediation", Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoExecute},
	}})
	spec := []byte(`{"spec":{"podCIDR":"10.9.0.0/24","podCIDRs":["10.9.0.0/24"],"providerID":"old://1"}}`)
	must.Do(c.Client().CoreV1().Nodes().Patch(ctx, r.Target.Node, types.MergePatchType, spec, metav1.PatchOptions{}))(t)
	backup, _ := isolate(t, k, r)
	fresh := must.Do(c.CreateNode(ctx, rig.Node{Name: r.Target.Node}))(t)
	r.NewNodeUID = string(fresh.UID)
	k8stest.Until(t, "restored", func() bool {
		return restored(ctx, k, r, backup) == nil
	})

	n := must.Do(c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
	for key, v := range theirs {
		assert.NotEqual(t, v, n.Annotations[key], key)
	}
	for key, v := range ours {
		assert.Equal(t, v, n.Annotations[key], key)
	}
	for key := range labels {
		assert.Contains(t, n.Labels, key)
	}
	assert.NotContains(t, n.Labels, "kubernetes.io/arch")
	assert.True(t, client.HasTaint(n.Spec.Taints, keep))
	for _, taint := range n.Spec.Taints {
		assert.NotContains(t, []string{"medik8s.io/remediation", "node.cloudprovider.kubernetes.io/uninitialized", "node.cilium.io/agent-not-ready"}, taint.Key)
	}
	assert.Empty(t, n.Spec.PodCIDR)
	assert.Empty(t, n.Spec.ProviderID)
}

// Another writer changes the Node all the time: neither loses anything.
func TestRestoreBesideAnotherWriter(t *testing.T) { // I21
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{Labels: map[string]string{"rack": "r1", "count": "saved"}})
	backup, _ := isolate(t, k, r)
	fresh := must.Do(c.CreateNode(ctx, rig.Node{Name: r.Target.Node}))(t)
	r.NewNodeUID = string(fresh.UID)
	nodes, last := c.Client().CoreV1().Nodes(), 0
	write := func() {
		last++
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"count":"%d"}}}`, last)
		must.Do(nodes.Patch(ctx, r.Target.Node, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	}
	k8stest.Until(t, "restored between two writes of the other", func() bool {
		write()
		return restored(ctx, k, r, backup) == nil && lookAt(t, k, r, backup).Seen.Restored == remediate.Yes
	})
	n := must.Do(nodes.Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
	assert.Equal(t, "r1", n.Labels["rack"])
	assert.Equal(t, fmt.Sprint(last), n.Labels["count"])
}

// What was restored once is its owner's: whatever is taken off then is not written again. // I21
func TestOwnerTakesOffWhatWasRestored(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{Labels: map[string]string{"rack": "r1"}, Annotations: map[string]string{"team": "db"},
		Taints: []corev1.Taint{{Key: "aci-containers-host/unavailable", Effect: corev1.TaintEffectNoSchedule}}, Unschedulable: true})
	backup, _ := isolate(t, k, r)
	fresh := must.Do(c.CreateNode(ctx, rig.Node{Name: r.Target.Node}))(t)
	r.NewNodeUID = string(fresh.UID)
	var readBack []string
	var err error
	k8stest.Until(t, "restored", func() bool {
		readBack, err = k.Restore(ctx, r, [][]byte{backup})
		return err == nil
	})
	want := []string{"annotation team", "cordon", "label rack", "taint aci-containers-host/unavailable:NoSchedule"}
	assert.Subset(t, readBack, want)
	assert.Subset(t, lookAt(t, k, r, backup).Seen.ReadBack, want)

	off := []byte(`{"metadata":{"labels":{"rack":null},"annotations":{"team":null}},"spec":{"taints":null,"unschedulable":null}}`)
	must.Do(c.Client().CoreV1().Nodes().Patch(ctx, r.Target.Node, types.MergePatchType, off, metav1.PatchOptions{}))(t)
	assert.Equal(t, remediate.No, lookAt(t, k, r, backup).Seen.Restored, "the record does not have them")
	r.Restored = map[string]string{}
	for _, key := range readBack {
		r.Restored[key] = r.NewNodeUID
	}
	assert.Equal(t, remediate.Yes, lookAt(t, k, r, backup).Seen.Restored)
	must.Do(k.Restore(ctx, r, [][]byte{backup}))(t)
	n := must.Do(c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
	assert.NotContains(t, n.Labels, "rack")
	assert.NotContains(t, n.Annotations, "team")
	assert.False(t, n.Spec.Unschedulable)
	assert.False(t, slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "aci-containers-host/unavailable" }))
}

// One annotation that may not be written costs the Node neither labels nor taints, and
// it is not taken for restored.
func TestRestoreThatIsRefusedInPart(t *testing.T) { // I21
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	gpu := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	r := bareMetal(t, c, rig.Host{}, rig.Node{Labels: map[string]string{"rack": "r1"}, Annotations: map[string]string{"team": "db"},
		Taints: []corev1.Taint{gpu}, Unschedulable: true})
	backup, _ := isolate(t, k, r)
	fresh := must.Do(c.CreateNode(ctx, rig.Node{Name: r.Target.Node}))(t)
	r.NewNodeUID = string(fresh.UID)
	allow := must.Do(c.Forbid(ctx, r.Target.Node, "team", "no teams here"))(t)

	var n *corev1.Node
	k8stest.Until(t, "refused in part; a controller that changes the Node meanwhile keeps other parts from it, and the refusal says more", func() bool {
		refusal := restored(ctx, k, r, backup)
		n = must.Do(c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
		return refusal != nil && strings.Contains(refusal.Error(), "no teams here") &&
			n.Labels["rack"] == "r1" && n.Spec.Unschedulable && client.HasTaint(n.Spec.Taints, gpu)
	})
	require.Equal(t, remediate.No, lookAt(t, k, r, backup).Seen.Restored)
	assert.NotContains(t, n.Annotations, "team")

	require.NoError(t, allow(ctx))
	k8stest.Until(t, "the rest, once it is allowed", func() bool {
		return restored(ctx, k, r, backup) == nil && lookAt(t, k, r, backup).Seen.Restored == remediate.Yes
	})
}
