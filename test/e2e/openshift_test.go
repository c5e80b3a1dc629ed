package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// racksPolicy power-cycles the Nodes of a pool that no check of the cluster covers.
const racksPolicy = `apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: racks}
spec:
  nodeSelector: {matchLabels: {scene/pool: racks}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  strategy: PowerCycle
`

// stockLeaders are the leader Leases that are always held on a stock OpenShift
// cluster. A stand-in holds them: it is no controller.
func stockLeaders(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	for lease, holder := range map[string]string{
		"controller-leader-election-capbm": "stand-in-actuator", "cluster-api-provider-healthcheck-leader": "stand-in-checks",
	} {
		require.NoError(t, s.Management.PutLease(ctx, rig.Lease{Namespace: rig.Namespace, Name: lease, Holder: holder, Duration: time.Hour}))
	}
}

// On a stock OpenShift cluster the bare-metal actuator and the controller of the checks
// are always alive, and the bare-metal operator enforces spec.online all the time.
// fenced acts on what is its own: the hosts of a FencePolicy, and those of a check that
// was handed over. It leaves alone what the others would act on.
func TestStockOpenShift(t *testing.T) { // I22
	t.Parallel()
	handed, theirs := scene.Metal("2s"), scene.Metal("2s")
	handed.Annotations = map[string]string{"cluster.x-k8s.io/paused": "", "fenced.io/evaluator": scene.Instance}
	theirs.Name, theirs.Match = "theirs", scene.Pool("theirs")
	s := set(t, scene.Options{
		Checks: []rig.Check{handed, theirs}, Policies: map[string]string{"racks.yaml": racksPolicy},
		Workers: []scene.Spec{
			{Name: "handed-over", Protocol: scene.IPMI, Metal3: true}, {Name: "by-policy", Protocol: scene.Redfish, Metal3: true, Pool: "racks"},
			{Name: "annotated", Protocol: scene.IPMI, Metal3: true, Pool: "racks"}, {Name: "theirs", Protocol: scene.IPMI, Metal3: true, Pool: "theirs"},
			{Name: "healthy-1", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy-2", Protocol: scene.IPMI, Metal3: true, Pool: "racks"},
		},
	})
	ctx := within(t)
	stockLeaders(ctx, t, s)
	operator := &scene.Metal3{}
	s.RunMetal3(operator)
	requested := ""
	require.NoError(t, s.Management.Annotate(ctx, rig.MachineResource, "annotated", "host.metal3.io/external-remediation", &requested))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	for _, name := range []string{"handed-over", "by-policy", "annotated", "theirs"} {
		s.Worker(name).Kubelet.Hang()
	}

	for _, name := range []string{"annotated", "theirs"} {
		x := awaitRefusal(ctx, t, s, name, "Contested")
		_, value, _, _ := gateOf(t, x, "Contested")
		assert.Contains(t, value, "stand-in-actuator", name)
	}
	for _, name := range []string{"handed-over", "by-policy"} {
		w := s.Worker(name)
		r := awaitRun(ctx, t, s, name, result(api.ResultDone))
		assert.Equal(t, stages, stepsOf(r), name)
		requireBack(ctx, t, s, w)
		requireOneDeletion(t, s, w)
		host, err := s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.NotContains(t, host.GetAnnotations(), "reboot.metal3.io/fenced", "the power lock is gone")
		assert.True(t, w.BMC.Power(), "%s is on", name)
	}
	for _, name := range []string{"annotated", "theirs", "healthy-1", "healthy-2"} {
		untouched(ctx, t, s, s.Worker(name))
		on, off := operator.Switched(name)
		assert.Zero(t, on+off, "somebody switched %s", name)
	}
}

// A bare-metal operator that does not honour the power lock switches the host on again
// at once. Then nothing proves the host off, and no Node is deleted: the power lock is
// what lets fenced win in TestStockOpenShift.
func TestOperatorThatIgnoresThePowerLock(t *testing.T) { // I1
	t.Parallel()
	s := set(t, scene.Options{
		Set: []string{"power.offDeadline=12s"},
		Workers: []scene.Spec{
			{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	operator := &scene.Metal3{IgnoresLocks: true}
	s.RunMetal3(operator)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(api.ResultWaiting))
	assert.Equal(t, "PowerOffFailed", r.Reason)
	untouched(ctx, t, s, w)
	on, _ := operator.Switched(w.Name)
	assert.Positive(t, on, "the operator fought the run")
}

// The owner of a host wants it off while its run is on the way back: fenced does not fight
// the bare-metal operator. The run stays open, with a record of what it waits for, and ends
// by itself once the owner wants the host on again.
func TestOwnerWantsTheHostOffMidRun(t *testing.T) { // I20, I22
	t.Parallel()
	check := scene.Metal("2s")
	check.NodeStartupTimeout = "15s"
	s := set(t, scene.Options{
		Checks: []rig.Check{check}, BootDelay: 15 * time.Second,
		Set: []string{"power.nodeReadyTimeout=15s", "power.offDeadline=15s", "power.retryInterval=5s"},
		Workers: []scene.Spec{
			{Name: "unwanted", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	operator := &scene.Metal3{}
	s.RunMetal3(operator)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("unwanted")
	w.Kubelet.Hang()
	awaitRun(ctx, t, s, w.Name, func(r api.RunRecord) bool { return slices.Contains(stepsOf(r), "PowerOn") })
	online := func(yes bool) {
		t.Helper()
		_, err := s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).
			Patch(ctx, w.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"online":%t}}`, yes), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	online(false)
	awaitRun(ctx, t, s, w.Name, func(r api.RunRecord) bool { return r.Result == api.ResultWaiting && r.Reason == "PowerForbidden" })
	assert.False(t, w.BMC.Power(), "its owner wants it off")
	online(true)
	awaitRun(ctx, t, s, w.Name, result(api.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
}

// medik8s' controllers keep away from a Node while fenced has it, and fenced while they
// have it. A stand-in holds their Leases: it is no controller.
func TestNodeLeaseOfMedik8s(t *testing.T) { // I22
	t.Parallel()
	s := set(t, scene.Options{
		CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8s},
		Workers: []scene.Spec{
			{Name: "hung", Protocol: scene.IPMI}, {Name: "theirs", Protocol: scene.IPMI},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.InstallMedik8s(ctx))
	lease := rig.Lease{Namespace: "medik8s-leases", Name: "node-theirs", Holder: "NodeHealthCheck-stand-in", Duration: time.Hour}
	require.NoError(t, s.Cluster.PutLease(ctx, lease))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	hung, theirs := s.Worker("hung"), s.Worker("theirs")
	hung.Kubelet.Hang()
	theirs.Kubelet.Hang()

	awaitOff(t, hung)
	held := nodeLeaseOf(ctx, t, s, hung.Name)
	require.NotNil(t, held, "the host is off, and the run open")
	assert.Contains(t, *held.Spec.HolderIdentity, "fenced-")
	assert.Empty(t, held.OwnerReferences, "it must outlive the Node")
	r := awaitRun(ctx, t, s, hung.Name, result(api.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, hung)
	require.Eventually(t, func() bool { return nodeLeaseOf(ctx, t, s, hung.Name) == nil }, patience, 200*time.Millisecond, "it is given back")

	x := awaitRefusal(ctx, t, s, theirs.Name, "Contested")
	_, value, _, _ := gateOf(t, x, "Contested")
	assert.Contains(t, value, lease.Holder)
	assert.True(t, theirs.BMC.Power(), "it is on")
	lease.Renewed = time.Now().Add(-2 * time.Hour)
	require.NoError(t, s.Cluster.PutLease(ctx, lease))
	awaitRun(ctx, t, s, theirs.Name, result(api.ResultDone))
	requireBack(ctx, t, s, theirs)
	requireOneDeletion(t, s, theirs)
}

// nodeLeaseOf is medik8s' Lease on a Node; nil if there is none.
func nodeLeaseOf(ctx context.Context, t *testing.T, s *scene.Scene, node string) *coordinationv1.Lease {
	t.Helper()
	l, err := s.Cluster.Client().CoordinationV1().Leases("medik8s-leases").Get(ctx, "node-"+node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return l
}
