package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
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
	allow := must.Do(s.Cluster.Forbid(ctx, refused.Name, scene.WornAnnotation, "no owners here"))(t)
	must.Do(s.StartDaemon(ctx))(t)
	for _, w := range s.Workers[:4] {
		w.Kubelet.Hang()
	}

	r := awaitRun(ctx, t, s, board.Name, result(wire.ResultWaiting))
	assert.Equal(t, "TargetChanged", r.Reason, "its BMC has told the truth")
	assert.Contains(t, r.Note, "another machine")

	r = awaitRun(ctx, t, s, refused.Name, func(r wire.RunRecord) bool { // the last try before a pause may fail by a change of the kubelet's
		return r.Result == wire.ResultWaiting && strings.Contains(r.Note, "no owners here")
	})
	assert.Equal(t, "RestoreFailed", r.Reason)
	require.NoError(t, allow(ctx)) // it goes on by itself
	awaitRun(ctx, t, s, refused.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, refused)

	awaitRun(ctx, t, s, full.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, full)
	n := must.Do(s.Cluster.WaitNode(ctx, full.Name, scene.IsReady))(t)
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
		deleted := must.Do(s.Cluster.Deletions("machines", w.Name))(t)
		assert.Empty(t, deleted, "deletions of Machine %s", w.Name)
	}
	requireNodes(ctx, t, s, "new-name", "healthy-1", "healthy-2")
	untouched(ctx, t, s, s.Worker("healthy-1"))
	untouched(ctx, t, s, s.Worker("healthy-2"))
}

// reinstall lets the host of a worker boot as another Node from now on.
func reinstall(t *testing.T, s *scene.Scene, w *scene.Worker, name, uuid string) {
	t.Helper()
	client := must.Do(s.Cluster.KubeletClient(name))(t)
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
	patch := must.Do(json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}}))(t)
	must.Do(s.Cluster.Client().CoreV1().Nodes().Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	return labels, annotations
}

func requireNodes(ctx context.Context, t *testing.T, s *scene.Scene, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.Cluster.WaitNode(ctx, name, scene.IsReady)
		require.NoError(t, err, name)
	}
}

// bad is a worker with something wrong about it, and the reason code that
// explain gives when it hangs.
var bad = []struct {
	scene.Spec
	reason string
	result string // of the run that was begun; "": there is none
}{
	{Spec: scene.Spec{Name: "no-host", Protocol: scene.IPMI, Unlisted: true}, reason: "NoHost"},
	{Spec: scene.Spec{Name: "no-secret", Protocol: scene.Redfish, Metal3: true, NoSecret: true}, reason: "SecretMissing"},
	{Spec: scene.Spec{Name: "wrong-password", Protocol: scene.IPMI, WrongPassword: true}, reason: "BMCAuth"},
	{Spec: scene.Spec{Name: "wrong-password-2", Protocol: scene.Redfish, Metal3: true, WrongPassword: true}, reason: "BMCAuth"},
	{Spec: scene.Spec{Name: "stranger", Protocol: scene.IPMI, Metal3: true, OtherUUID: true}, reason: "IdentityMismatch"},
	{Spec: scene.Spec{Name: "stranger-2", Protocol: scene.Redfish, OtherUUID: true}, reason: "IdentityMismatch"},
	{Spec: scene.Spec{Name: "negative", Protocol: scene.IPMI, Pool: "negative"}, reason: "InvalidCheck"},
	{Spec: scene.Spec{Name: "garbled", Protocol: scene.IPMI, Pool: "garbled"}, reason: "InvalidCheck"},
	{Spec: scene.Spec{Name: "stays-on", Protocol: scene.IPMI, Metal3: true}, reason: "PowerOffFailed", result: wire.ResultWaiting},
	{Spec: scene.Spec{Name: "zombie", Protocol: scene.IPMI}, reason: "FalseOff", result: wire.ResultHeld},
}

// Whatever is wrong, there is a reason code for it, no Node is deleted and no
// host is left off.
func TestBadInputDeletesNothing(t *testing.T) {
	t.Parallel()
	o := scene.Options{
		Set: []string{"power.offDeadline=12s"},
		Checks: []rig.Check{
			scene.Metal("2s"),
			invalid("negative", "-5m"),
			invalid("garbled", "foo10m"),
		},
		Workers: []scene.Spec{{Name: "healthy", Protocol: scene.IPMI}}, // or everything is down
	}
	for _, b := range bad {
		o.Workers = append(o.Workers, b.Spec)
	}
	s := set(t, o)
	ctx := within(t)
	require.NoError(t, s.Worker("stays-on").BMC.IgnoreOff(true))
	require.NoError(t, s.Worker("zombie").BMC.IgnoreOff(true))
	require.NoError(t, s.Worker("zombie").BMC.LieOff(true))
	must.Do(s.StartDaemon(ctx))(t)
	for _, b := range bad {
		s.Worker(b.Name).Kubelet.Hang()
	}
	renewOnceOff(ctx, t, s, s.Worker("zombie"))

	for _, b := range bad {
		w := s.Worker(b.Name)
		x := awaitRefusal(ctx, t, s, b.Name, b.reason)
		if b.result != "" {
			require.NotNil(t, x.Run, b.Name)
			assert.Equal(t, b.result, x.Run.Result)
			assert.Equal(t, b.reason, x.Run.Reason)
		} else {
			assert.Nil(t, x.Run, "%s: a run was begun", b.Name)
			assert.True(t, refuses(x, b.reason), "%s: the gates are %+v", b.Name, x.Gates)
		}
		assert.True(t, w.BMC.Power(), "%s is on", b.Name)
	}
	for _, b := range bad {
		untouched(ctx, t, s, s.Worker(b.Name))
	}
	st := must.Do(s.Status(ctx))(t)
	assert.NotEmpty(t, st.Degraded())
}

// invalid is a check of a pool with a start-up timeout that is none.
func invalid(pool, startup string) rig.Check {
	k := scene.Metal("2s")
	k.Name, k.Match, k.NodeStartupTimeout = pool, scene.Pool(pool), startup
	return k
}

// renewOnceOff renews the Lease of a host again and again once fenced has sent
// Off to its BMC: the kubelet lives although the BMC says that the host is off.
func renewOnceOff(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	b, ok := w.BMC.(*ipmisim.GoBMC)
	require.True(t, ok)
	require.Eventually(t, func() bool { return b.Counts().Off > 0 }, patience, 50*time.Millisecond, "Off was sent to %s", w.Name)
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			err := s.Cluster.PutLease(ctx, rig.Lease{
				Namespace: "kube-node-lease", Name: w.Name, Holder: w.Name, Duration: 40 * time.Second,
			})
			assert.True(t, err == nil || ctx.Err() != nil, "renew the Lease: %v", err)
			pause(ctx, time.Second)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

// awaitRefusal waits until explain gives a reason for a node; questions that are
// refused are repeated, because the daemon may not have seen the cluster yet.
func awaitRefusal(ctx context.Context, t *testing.T, s *scene.Scene, node, code string) wire.Explanation {
	t.Helper()
	return awaitAnswer(ctx, t, "the refusal "+code+" of "+node, func() (wire.Explanation, error) { return s.Explain(ctx, node) },
		func(x wire.Explanation) bool { return x.Refused == code })
}

// refuses says whether a gate is closed for a reason.
func refuses(x wire.Explanation, code string) bool {
	for _, g := range x.Gates {
		if !g.Pass && g.Reason == reason.Code(code) {
			return true
		}
	}
	return false
}

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
			must.Do(s.StartDaemon(ctx))(t)
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

			_, err := s.Cluster.Client().StorageV1().VolumeAttachments().Get(ctx, stays, metav1.GetOptions{})
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
	a := must.Do(attachments.Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume + "-to-" + node},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi.example.com", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}, metav1.CreateOptions{}))(t)
	a.Status.Attached = true
	must.Do(attachments.UpdateStatus(ctx, a, metav1.UpdateOptions{}))(t)
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
	pods := must.Do(s.Cluster.Deletions("pods", "db-0"))(t)
	forced := slices.DeleteFunc(slices.Clone(pods), func(d rig.Deletion) bool { return !d.Forced })
	require.Len(t, forced, 1, "%v", pods)
	volumes := must.Do(s.Cluster.Deletions("volumeattachments", attachment))(t)
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
