package e2e

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

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

const database = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      automountServiceAccountToken: false
      containers: [{name: main, image: example.com/none}]
`

// With releasePods, the pod of a StatefulSet on a hung host is forced out as soon as its Node is
// isolated, and its VolumeAttachment is deleted, so the StatefulSet's controller makes the next pod
// at once. The rig has no scheduler and no storage: the test binds the first pod, and stands in
// for the VolumeAttachment's author. // I7
func TestPodsAreReleasedAtOnce(t *testing.T) {
	for _, isolation := range []string{"deleteNode", "outOfServiceTaint"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			s := set(t, scene.Options{
				Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.Redfish}},
				Set:     []string{"releasePods=true", "isolation=" + isolation, "power.podsGoneTimeout=70s"},
			})
			ctx := within(t)
			require.NoError(t, s.Cluster.ApplyConfig(ctx, "kubernetes/release-pods.yaml"))
			require.NoError(t, s.Cluster.CreateNamespace(ctx, "shop"))
			require.NoError(t, s.Cluster.Apply(ctx, []byte(database)))
			first := bind(ctx, t, s, "hung")
			volume, stays := attach(ctx, t, s, "hung"), attach(ctx, t, s, "healthy")
			require.NoError(t, s.Cluster.CreatePod(ctx, "shop", "neighbour", "healthy"))
			_, err := s.StartDaemon(ctx)
			require.NoError(t, err)
			s.Worker("hung").Kubelet.Hang()

			awaitPod(ctx, t, s, func(p *corev1.Pod) bool { return p.UID != first.UID })
			r := awaitRun(ctx, t, s, "hung", result(api.ResultDone))
			t.Logf("%s: the pod was forced out %s after the isolation was on the record", isolation, forcedOut(t, s).Sub(isolated(t, r)))
			_, err = s.Cluster.Client().StorageV1().VolumeAttachments().Get(ctx, volume, metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err), "%v", err)

			_, err = s.Cluster.Client().StorageV1().VolumeAttachments().Get(ctx, stays, metav1.GetOptions{})
			require.NoError(t, err, "of another Node")
			_, err = s.Cluster.Client().CoreV1().Pods("shop").Get(ctx, "neighbour", metav1.GetOptions{})
			require.NoError(t, err, "on another Node")
			if isolation == "deleteNode" {
				requireBack(ctx, t, s, s.Worker("hung"))
			} else {
				requireRebooted(ctx, t, s, s.Worker("hung"))
			}
		})
	}
}

// bind does what the scheduler does, and returns the pod.
func bind(ctx context.Context, t *testing.T, s *scene.Scene, node string) *corev1.Pod {
	t.Helper()
	p := awaitPod(ctx, t, s, func(*corev1.Pod) bool { return true })
	require.NoError(t, rig.WhileBusy(ctx, func() error {
		return s.Cluster.Client().CoreV1().Pods("shop").Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
	}))
	return p
}

func awaitPod(ctx context.Context, t *testing.T, s *scene.Scene, ok func(*corev1.Pod) bool) (p *corev1.Pod) {
	t.Helper()
	require.Eventually(t, func() bool {
		found, err := s.Cluster.Client().CoreV1().Pods("shop").Get(ctx, "db-0", metav1.GetOptions{})
		p = found
		return err == nil && ok(found)
	}, patience, 100*time.Millisecond, "pod db-0")
	return p
}

func attach(ctx context.Context, t *testing.T, s *scene.Scene, node string) string {
	t.Helper()
	volume := "volume-of-" + node
	a, err := s.Cluster.Client().StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "attachment-to-" + node},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi.example.com", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return a.Name
}

// forcedOut is when fenced deleted the pod, by its UID. // I2
func forcedOut(t *testing.T, s *scene.Scene) time.Time {
	t.Helper()
	deleted, err := s.Cluster.Deletions("pods", "db-0")
	require.NoError(t, err)
	var forced []rig.Deletion
	for _, d := range deleted {
		if d.User == rig.FencedUser {
			forced = append(forced, d)
		}
	}
	require.Len(t, forced, 1, "%v", deleted)
	assert.NotEmpty(t, forced[0].UID, "without the UID as a precondition")
	return forced[0].Done
}

// isolated is when step 2 ended: the host was proven off, and its Node isolated.
func isolated(t *testing.T, r api.RunRecord) time.Time {
	t.Helper()
	for _, step := range r.Steps {
		if step.Step == "PowerOn" {
			return step.Started
		}
	}
	require.Fail(t, "the run has no step 3")
	return time.Time{}
}
