package k8swatch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// isolate saves and isolates the Node, again while controllers still change it.
func isolate(t *testing.T, k *Cluster, r remediate.Run) (data []byte, b remediate.Backup) {
	t.Helper()
	until(t, time.Minute, "isolated as saved", func() (ok bool) {
		var err error
		data, b, err = k.Backup(t.Context(), r.Target)
		return err == nil && k.Act(t.Context(), r, remediate.IsolateNode, nil, b) == nil
	})
	return data, b
}

func TestNodeIsDeletedOnlyAsSaved(t *testing.T) { // I2
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	_, b, err := k.Backup(ctx, r.Target)
	require.NoError(t, err)

	patch := []byte(`{"metadata":{"labels":{"changed":"since"}}}`)
	_, err = c.Client().CoreV1().Nodes().Patch(ctx, r.Target.Node, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	require.Error(t, k.Act(ctx, r, remediate.IsolateNode, nil, b), "it changed since it was saved")

	wrong, otherUID := r, b
	wrong.Target.NodeUID, otherUID.UID = "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000"
	_, _, err = k.Backup(ctx, wrong.Target)
	require.Error(t, err, "another Node's backup")
	require.Error(t, k.Act(ctx, wrong, remediate.IsolateNode, nil, otherUID), "another Node of this name")
	deletions, err := c.NodeDeletions(r.Target.Node)
	require.NoError(t, err)
	require.Empty(t, deletions)

	_, b = isolate(t, k, r)
	require.NoError(t, k.Act(ctx, r, remediate.IsolateNode, nil, b), "already gone is a success")
	assert.Equal(t, remediate.No, look(t, k, r).Seen.Node.Exists)
	deletions, err = c.NodeDeletions(r.Target.Node)
	require.NoError(t, err)
	require.Len(t, deletions, 1)
	assert.Equal(t, b, remediate.Backup{UID: deletions[0].UID, ResourceVersion: deletions[0].ResourceVersion})
}

func TestNodeGetsBackWhatItHad(t *testing.T) { // I21
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	gpu := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	r := bareMetal(t, c, rig.Host{}, rig.Node{
		Labels:      map[string]string{"node-role.kubernetes.io/worker": "", "zone": "a", "kubernetes.io/hostname": "old"},
		Annotations: map[string]string{"machineconfiguration.openshift.io/state": "Done", "csi.volume.kubernetes.io/nodeid": "{}", client.RunAnnotation: "r-1", client.StepAnnotation: "PowerOff", client.InstanceAnnotation: "f"},
		Taints:      []corev1.Taint{gpu}, Unschedulable: true,
	})
	backup, _ := isolate(t, k, r)
	fresh, err := c.CreateNode(ctx, rig.Node{Name: r.Target.Node, Labels: map[string]string{"zone": "b"}})
	require.NoError(t, err)

	assert.Equal(t, remediate.No, look(t, k, r, backup).Seen.Restored)
	assert.Equal(t, remediate.Yes, look(t, k, r).Seen.Restored, "nothing was saved")
	assert.Equal(t, remediate.CannotTell, k.Look(ctx, r, nil).Seen.Restored, "the backups could not be read")
	require.Error(t, restored(ctx, k, r, backup), "no Node registered for this run")
	r.NewNodeUID = string(fresh.UID)
	until(t, time.Minute, "restored, past the conflicts with controllers", func() bool {
		return restored(ctx, k, r, backup) == nil
	})

	s := look(t, k, r, backup).Seen
	assert.Equal(t, remediate.Yes, s.Restored, "read back")
	n, err := c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "b", n.Labels["zone"], "the live value wins")
	assert.Contains(t, n.Labels, "node-role.kubernetes.io/worker")
	assert.NotEqual(t, "old", n.Labels["kubernetes.io/hostname"], "the kubelet's own")
	assert.Equal(t, "Done", n.Annotations["machineconfiguration.openshift.io/state"])
	assert.NotContains(t, n.Annotations, "csi.volume.kubernetes.io/nodeid")
	for _, key := range client.MarkKeys {
		assert.NotContains(t, n.Annotations, key, "a mark is of its time")
	}
	assert.True(t, n.Spec.Unschedulable)
	assert.True(t, client.HasTaint(n.Spec.Taints, gpu))
}

func TestTaintInPlaceOfDeletion(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	r.Isolation = remediate.IsolateTaint
	backup, _ := isolate(t, k, r)
	assert.True(t, look(t, k, r, backup).Seen.Node.OutOfService)
	assert.Equal(t, remediate.No, look(t, k, r, backup).Seen.Restored, "our taint is still there")
	r.NewNodeUID = r.Target.NodeUID
	until(t, time.Minute, "the taint is gone", func() bool {
		return restored(ctx, k, r, backup) == nil
	})
	assert.False(t, look(t, k, r, backup).Seen.Node.OutOfService)
}

func TestHoldStandsAndGoes(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	for range 2 { // each is absolute
		require.NoError(t, k.Act(ctx, r, remediate.SetPowerLock, nil, remediate.Backup{}))
		s := look(t, k, r).Seen
		require.Equal(t, remediate.Yes, s.PowerLock)
		require.Equal(t, remediate.No, s.Contested, "our own hold is no rival")
	}
	u, err := c.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, hostName(r), metav1.GetOptions{})
	require.NoError(t, err)
	assert.JSONEq(t, `{"mode":"hard"}`, u.GetAnnotations()["reboot.metal3.io/fenced"])
	for range 2 {
		require.NoError(t, k.Act(ctx, r, remediate.ReleasePowerLock, nil, remediate.Backup{}))
		require.Equal(t, remediate.No, look(t, k, r).Seen.PowerLock)
	}
	r.Target.BareMetalHostUID = "00000000-0000-0000-0000-000000000000"
	require.Error(t, k.Act(ctx, r, remediate.SetPowerLock, nil, remediate.Backup{}), "another BareMetalHost of this name")
	require.Equal(t, remediate.No, look(t, k, r).Seen.PowerLock)
	r.Target.BareMetalHost = rig.Namespace + "/none"
	require.NoError(t, k.Act(ctx, r, remediate.ReleasePowerLock, nil, remediate.Backup{}), "no host, no hold")
	require.Error(t, k.Act(ctx, r, remediate.SetPowerLock, nil, remediate.Backup{}))
}

func TestMachineRequestAndDeletion(t *testing.T) { // I2
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	empty := ""
	require.NoError(t, c.Annotate(ctx, rig.MachineResource, r.Target.Machine, manifest.RemediationAnnotation, &empty))
	require.True(t, look(t, k, r).Seen.Machine.Requested)
	wrong := r
	wrong.Target.MachineUID = "00000000-0000-0000-0000-000000000000"
	require.Error(t, k.Act(ctx, wrong, remediate.ClearRequest, nil, remediate.Backup{}), "another Machine of this name")
	require.Error(t, k.Act(ctx, wrong, remediate.DeleteTargetMachine, nil, remediate.Backup{}), "another Machine of this name")
	require.True(t, look(t, k, r).Seen.Machine.Requested)

	require.NoError(t, k.Act(ctx, r, remediate.ClearRequest, nil, remediate.Backup{}))
	require.False(t, look(t, k, r).Seen.Machine.Requested)
	for range 2 {
		require.NoError(t, k.Act(ctx, r, remediate.DeleteTargetMachine, nil, remediate.Backup{}))
	}
	assert.Equal(t, remediate.No, look(t, k, r).Seen.Machine.Exists)
}

func TestCredentials(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	whole, half := rigtest.Name("secret"), rigtest.Name("secret")
	require.NoError(t, c.CreateSecret(ctx, whole, map[string]string{"username": " admin\n", "password": "hush\n"}))
	require.NoError(t, c.CreateSecret(ctx, half, map[string]string{"username": "admin", "password": " \n"}))
	user, password, err := k.Credentials(ctx, rig.Namespace, whole)
	require.NoError(t, err)
	assert.Equal(t, "admin", user)
	assert.Equal(t, "hush", password.Reveal())
	_, _, err = k.Credentials(ctx, rig.Namespace, half)
	assert.ErrorIs(t, err, write.ErrSecretIncomplete)
	_, _, err = k.Credentials(ctx, rig.Namespace, "none")
	assert.ErrorIs(t, err, write.ErrSecretMissing)
	_, _, err = k.Credentials(ctx, metav1.NamespaceSystem, whole)
	require.True(t, apierrors.IsForbidden(err), "a namespace without BareMetalHosts: %v", err)
	assert.ErrorContains(t, err, "in the namespace kube-system the ClusterRole fenced-secrets is not bound; run fencectl init and its script again")
}

// restored restores a Node from one backup.
func restored(ctx context.Context, c *Cluster, r remediate.Run, backup []byte) error {
	_, err := c.Restore(ctx, r, [][]byte{backup})
	return err
}
