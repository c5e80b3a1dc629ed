package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// database is a StatefulSet whose pod has a volume that one Node at a time may attach. Its pod
// prefers the host that hangs, and tolerates what every Node of a scene wears.
const database = `apiVersion: v1
kind: PersistentVolume
metadata: {name: volume}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  csi: {driver: csi.example.com, volumeHandle: volume}
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: shop, name: data-db-0}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-db-0, namespace: shop, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeName: volume
  resources: {requests: {storage: 1Gi}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  template:
    metadata: {labels: {app: db}}
    spec:
      automountServiceAccountToken: false
      containers: [{name: main, image: example.com/none, volumeMounts: [{name: data, mountPath: /data}]}]
      tolerations:
      - {key: scene/dedicated, operator: Exists, effect: NoSchedule}
      - {key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - {weight: 100, preference: {matchExpressions: [{key: scene/rack, operator: In, values: [hung]}]}}
`

// With releasePods, the pod of a StatefulSet on a hung host is forced out as soon as its Node is
// isolated, and its VolumeAttachment is deleted, both after the proof of off. So the StatefulSet's
// controller makes the next pod, the scheduler binds it to another Node, and the volume is attached
// there, all while the host is off.
// The rig has no storage: the test writes that the claim is bound, and stands in for the CSI driver's
// attacher, which attaches a volume to one Node at a time. // I7
func TestPodsAreReleasedAtOnce(t *testing.T) {
	t.Log("\n| from the proof of off until | the Node is isolated | the pod is forced out | the next pod is bound | its volume is attached |\n| --- | --- | --- | --- | --- |")
	for _, isolation := range []string{"deleteNode", "outOfServiceTaint"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			s := set(t, scene.Options{
				Workers: []scene.Spec{{Name: "hung", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI}},
				Set:     []string{"releasePods=true", "isolation=" + isolation, "power.podsGoneTimeout=70s"},
			})
			ctx := within(t)
			require.NoError(t, s.Cluster.StartScheduler(ctx))
			require.NoError(t, s.Cluster.ApplyConfig(ctx, "kubernetes/release-pods.yaml"))
			require.NoError(t, s.Cluster.CreateNamespace(ctx, "shop"))
			require.NoError(t, s.Cluster.Apply(ctx, []byte(database)))
			first := awaitBound(ctx, t, s, "")
			require.Equal(t, "hung", first.Spec.NodeName)
			attachment, stays := attach(ctx, t, s, "volume", "hung"), attach(ctx, t, s, "another", "healthy")
			require.NoError(t, s.Cluster.CreatePod(ctx, "shop", "neighbour", "healthy"))
			_, err := s.StartDaemon(ctx)
			require.NoError(t, err)
			w := s.Worker("hung")
			ignoreOn(w, true) // it stays off until its pod is elsewhere
			truth := watchSupply(t, w)
			w.Kubelet.Hang()

			next := awaitBound(ctx, t, s, first.UID)
			bound := time.Now()
			require.Equal(t, "healthy", next.Spec.NodeName)
			awaitDetached(ctx, t, s, attachment)
			attach(ctx, t, s, "volume", "healthy")
			attached := time.Now()
			assert.False(t, w.BMC.Power(), "the host is off")
			ignoreOn(w, false)
			r := awaitRun(ctx, t, s, "hung", result(wire.ResultDone))
			proven := begun(t, r, "DeleteNode")
			after := func(at time.Time) time.Duration { return at.Sub(proven).Round(time.Millisecond) }
			isolated := begun(t, r, "PowerOn")
			pod, volume := releases(t, s, isolation, attachment)
			t.Logf("\n| %s | %s | %s | %s | %s |", isolation, after(isolated), after(pod.Done), after(bound), after(attached))
			assert.True(t, proven.Before(pod.Received), "proven off at %s, before its pod is forced out: %+v", proven, pod)
			assert.True(t, pod.Received.Before(volume.Received), "the pod is forced out before its volume is detached: %+v %+v", pod, volume)
			assert.True(t, isolated.Before(volume.Received), "isolated at %s, before its volume is detached: %+v", isolated, volume)
			assert.Less(t, attached.Sub(proven), 5*time.Minute, "Kubernetes alone detaches a volume after 6 minutes")
			truth.requireOffAt(t, pod.Received)

			_, err = s.Cluster.Client().StorageV1().VolumeAttachments().Get(ctx, stays, metav1.GetOptions{})
			require.NoError(t, err, "of another Node")
			_, err = s.Cluster.Client().CoreV1().Pods("shop").Get(ctx, "neighbour", metav1.GetOptions{})
			require.NoError(t, err, "on another Node")
			if isolation == "deleteNode" {
				requireBack(ctx, t, s, w)
			} else {
				requireRebooted(ctx, t, s, w)
			}
		})
	}
}

// awaitBound waits until the pod of the StatefulSet, but not the one with this UID, is bound to a Node.
func awaitBound(ctx context.Context, t *testing.T, s *scene.Scene, not types.UID) (p *corev1.Pod) {
	t.Helper()
	require.Eventually(t, func() bool {
		found, err := s.Cluster.Client().CoreV1().Pods("shop").Get(ctx, "db-0", metav1.GetOptions{})
		p = found
		return err == nil && found.UID != not && found.Spec.NodeName != ""
	}, patience, 50*time.Millisecond, "pod db-0 is bound")
	return p
}

// attach does what a CSI driver's attacher does when a volume may go to a Node.
func attach(ctx context.Context, t *testing.T, s *scene.Scene, volume, node string) string {
	t.Helper()
	attachments := s.Cluster.Client().StorageV1().VolumeAttachments()
	a, err := attachments.Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume + "-to-" + node},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi.example.com", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	a.Status.Attached = true
	_, err = attachments.UpdateStatus(ctx, a, metav1.UpdateOptions{})
	require.NoError(t, err)
	return a.Name
}

// awaitDetached waits until an attachment is gone.
func awaitDetached(ctx context.Context, t *testing.T, s *scene.Scene, attachment string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := s.Cluster.Client().StorageV1().VolumeAttachments().Get(ctx, attachment, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, 50*time.Millisecond, "%s is gone", attachment)
}

// releases are the deletions that forced the pod of the hung host out, and that detached its volume.
// Both are fenced's, each by its UID. Only while the Node is tainted does kube-controller-manager
// also force its pods out, every 20 s, and may have come first. No controller of the rig deletes a
// VolumeAttachment. // I2
func releases(t *testing.T, s *scene.Scene, isolation, attachment string) (pod, volume rig.Deletion) {
	t.Helper()
	pods, err := s.Cluster.Deletions("pods", "db-0")
	require.NoError(t, err)
	forced := slices.DeleteFunc(slices.Clone(pods), func(d rig.Deletion) bool { return !d.Forced })
	require.Len(t, forced, 1, "%v", pods)
	volumes, err := s.Cluster.Deletions("volumeattachments", attachment)
	require.NoError(t, err)
	require.Len(t, volumes, 1)
	pod, volume = forced[0], volumes[0]
	t.Logf("%s forced the pod out, %s deleted its VolumeAttachment", pod.User, volume.User)
	if isolation == "deleteNode" || pod.User != "system:kube-controller-manager" {
		assert.Equal(t, rig.FencedUser, pod.User)
		assert.NotEmpty(t, pod.UID, "without the UID as a precondition")
	}
	assert.Equal(t, rig.FencedUser, volume.User)
	assert.NotEmpty(t, volume.UID, "without the UID as a precondition")
	return pod, volume
}

// begun is when a step of a run began. DeleteNode begins with the proof of off, and PowerOn with the
// isolation on the record.
func begun(t *testing.T, r wire.RunRecord, want string) time.Time {
	t.Helper()
	for _, step := range r.Steps {
		if step.Step == want {
			return step.Started
		}
	}
	require.Fail(t, "the run has no step "+want)
	return time.Time{}
}
