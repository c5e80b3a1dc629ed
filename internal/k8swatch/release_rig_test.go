package k8swatch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// attach creates a VolumeAttachment of a Node.
func attach(t *testing.T, c *rig.ControlPlane, node string) string {
	t.Helper()
	volume := rigtest.Name("volume")
	a := must.Do(c.Client().StorageV1().VolumeAttachments().Create(rigtest.Context(t, time.Minute), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: rigtest.Name("attachment")},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "csi.example.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}, metav1.CreateOptions{}))(t)
	return a.Name
}

func podExists(t *testing.T, c *rig.ControlPlane, name string) bool {
	t.Helper()
	_, err := c.Client().CoreV1().Pods("released").Get(rigtest.Context(t, time.Minute), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	return err == nil
}

func isAttached(t *testing.T, c *rig.ControlPlane, name string) bool {
	t.Helper()
	_, err := c.Client().StorageV1().VolumeAttachments().Get(rigtest.Context(t, time.Minute), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	return err == nil
}

// The pods and VolumeAttachments of an isolated Node are deleted, those of every other Node are
// not, and none while the Node is not as the isolation left it. // I2, I7
func TestReleasePodsOfTheIsolatedNode(t *testing.T) {
	for _, isolation := range []remediate.Isolation{remediate.IsolateDelete, remediate.IsolateTaint} {
		t.Run(string(isolation), func(t *testing.T) {
			c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
			require.NoError(t, c.ApplyConfig(ctx, "kubernetes/release-pods.yaml"))
			require.NoError(t, c.CreateNamespace(ctx, "released"))
			k := dial(t, c)
			r := bareMetal(t, c, rig.Host{}, rig.Node{})
			r.Isolation, r.Limits.ReleasePods, r.Step = isolation, true, remediate.PowerOn
			other := rigtest.Name("other-node")
			must.Do(c.CreateNode(ctx, rig.Node{Name: other}))(t)
			own, stays := rigtest.Name("pod"), rigtest.Name("pod")
			require.NoError(t, c.CreatePod(ctx, "released", own, r.Target.Node))
			require.NoError(t, c.CreatePod(ctx, "released", stays, other))
			volume, otherVolume := attach(t, c, r.Target.Node), attach(t, c, other)

			release := func() error { return k.Act(ctx, r, remediate.ReleasePods, nil, remediate.Backup{}) }
			require.ErrorContains(t, release(), "its isolation is not on the record")
			r.Isolated = time.Now()
			require.Error(t, release(), "the Node is there, and not tainted")
			require.True(t, podExists(t, c, own))
			require.True(t, isAttached(t, c, volume))

			isolateByHand(t, c, &r)
			s := lookAt(t, k, r).Seen
			if isolation == remediate.IsolateDelete { // a tainted Node's pod is evicted at once, and may be gone
				assert.Equal(t, remediate.No, s.PodsReleased)
			}
			assert.Equal(t, remediate.No, s.VolumesReleased)
			require.NoError(t, release())
			assert.False(t, podExists(t, c, own), "forced out, without a kubelet to confirm it")
			assert.False(t, isAttached(t, c, volume))
			assert.True(t, podExists(t, c, stays), "of another Node")
			assert.True(t, isAttached(t, c, otherVolume))
			s = lookAt(t, k, r).Seen
			assert.Equal(t, remediate.Yes, s.PodsReleased)
			assert.Equal(t, remediate.Yes, s.VolumesReleased)
			require.NoError(t, release(), "nothing is left")
		})
	}
}

// isolateByHand does what the isolation does. The pod garbage collector takes 40 s or longer.
func isolateByHand(t *testing.T, c *rig.ControlPlane, r *remediate.Run) {
	t.Helper()
	ctx := rigtest.Context(t, time.Minute)
	nodes := c.Client().CoreV1().Nodes()
	if r.Isolation == remediate.IsolateDelete {
		require.NoError(t, nodes.Delete(ctx, r.Target.Node, metav1.DeleteOptions{}))
		return
	}
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the node lifecycle controller writes, too
		n, err := nodes.Get(ctx, r.Target.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = append(n.Spec.Taints, client.OutOfService)
		n, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
		if err == nil {
			r.Target.NodeUID, r.Target.BootID = string(n.UID), n.Status.NodeInfo.BootID
		}
		return err
	}))
}

// A Node that registered again keeps its pods. // I2, I7
func TestReleaseLeavesTheNextNodeAlone(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.ApplyConfig(ctx, "kubernetes/release-pods.yaml"))
	require.NoError(t, c.CreateNamespace(ctx, "released"))
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	r.Isolation, r.Limits.ReleasePods, r.Step, r.Isolated = remediate.IsolateDelete, true, remediate.PowerOn, time.Now()
	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, r.Target.Node, metav1.DeleteOptions{}))
	must.Do(c.CreateNode(ctx, rig.Node{Name: r.Target.Node}))(t)
	pod := rigtest.Name("pod")
	require.NoError(t, c.CreatePod(ctx, "released", pod, r.Target.Node))
	require.ErrorContains(t, k.Act(ctx, r, remediate.ReleasePods, nil, remediate.Backup{}), "a Node of this name exists again")
	assert.True(t, podExists(t, c, pod))

	taken := r
	taken.Isolation = remediate.IsolateTaint // the Node is another one, and not tainted
	require.Error(t, k.Act(ctx, taken, remediate.ReleasePods, nil, remediate.Backup{}))
	assert.True(t, podExists(t, c, pod))
}

// The account of fenced may not delete a Ready Node, nor one of the control plane, whatever its
// role says. Other accounts may.
func TestAdmissionPolicyProtectsNodes(t *testing.T) {
	c := rigtest.Own(t, rig.Options{GracePeriod: time.Hour}) // no controller makes a Ready Node Unknown meanwhile
	ctx := rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.ApplyConfig(ctx, "kubernetes/protect-nodes.yaml"))
	fenced := dial(t, c).servers.Work.API().Typed.Nodes()
	make := func(labels map[string]string, ready corev1.ConditionStatus) string {
		name := rigtest.Name("protected")
		must.Do(c.CreateNode(ctx, rig.Node{Name: name, Labels: labels}))(t)
		require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			n, err := c.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.Now()}}
			_, err = c.Client().CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
			return err
		}))
		return name
	}
	try := func(name string) error {
		return fenced.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	// The ServiceAccount of fencectl init; the group gives it every right.
	kubeconfig := must.Do(c.Kubeconfig("system:serviceaccount:fenced:fenced", "system:masters"))(t)
	account := connected(t, kubeconfig).servers.Work.API().Typed.Nodes()
	protected := map[string]string{make(nil, corev1.ConditionTrue): "Ready"}
	for _, label := range policy.ControlPlaneLabels {
		protected[make(map[string]string{label: ""}, corev1.ConditionUnknown)] = "control-plane"
	}
	for name, why := range protected {
		k8stest.Until(t, "the policy to be enforced", func() bool { return try(name) != nil }) // the API server loads it
		err := try(name)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(t, err, why)
		require.Error(t, fenced.Delete(ctx, name, metav1.DeleteOptions{}))
		assert.ErrorContains(t, account.Delete(ctx, name, metav1.DeleteOptions{}), why)
		require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}), "an administrator may")
	}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse} {
		require.NoError(t, fenced.Delete(ctx, make(nil, status), metav1.DeleteOptions{}), "what fenced does stays allowed")
	}
}
