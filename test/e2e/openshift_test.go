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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// stockOpenShift runs the controllers that are always alive on a stock OpenShift cluster on bare
// metal. They are stand-ins.
func stockOpenShift(ctx context.Context, t *testing.T, s *scene.Scene) *scene.Metal3 {
	t.Helper()
	operator := &scene.Metal3{}
	s.RunMetal3(operator)
	require.NoError(t, s.RunActuator(ctx))
	require.NoError(t, s.RunHealthChecks(ctx))
	return operator
}

// On a stock OpenShift cluster fenced power-cycles the host of a documented FencePolicy. The hosts of
// OpenShift's own checks are left to the living actuator, which power-cycles one of them at the
// same time; so is a host of the policy that somebody has annotated for the actuator.
func TestStockOpenShift(t *testing.T) { // I22
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Checks: []rig.Check{}, Policies: map[string]string{"racks.yaml": string(soon(t, "openshift-policy"))},
		Workers: []scene.Spec{
			{Name: "by-policy", Protocol: scene.Redfish, Metal3: true, Pool: "racks"}, {Name: "annotated", Protocol: scene.IPMI, Metal3: true, Pool: "racks"},
			{Name: "theirs", Protocol: scene.IPMI, Metal3: true},
			{Name: "healthy-1", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy-2", Protocol: scene.IPMI, Metal3: true},
			{Name: "healthy-3", Protocol: scene.IPMI, Metal3: true, Pool: "racks"}, {Name: "well-1", Pool: "racks"}, {Name: "well-2", Pool: "racks"},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Management.Apply(ctx, soon(t, "openshift")))
	must.Do(s.StartDaemon(ctx))(t)
	requested := ""
	require.NoError(t, s.Management.Annotate(ctx, rig.MachineResource, "annotated", scene.Requested, &requested))
	actuator := rig.Lease{Namespace: rig.Namespace, Name: "controller-leader-election-capbm", Holder: scene.ActuatorUser, Duration: time.Hour}
	require.NoError(t, s.Management.PutLease(ctx, actuator))
	s.Worker("annotated").Kubelet.Hang()
	x := awaitRefusal(ctx, t, s, "annotated", "Contested")
	_, value, _, _ := gateOf(t, x, "Contested")
	assert.Contains(t, value, scene.ActuatorUser)

	operator := stockOpenShift(ctx, t, s)
	for _, name := range []string{"by-policy", "theirs"} {
		s.Worker(name).Kubelet.Hang()
	}
	r := awaitRun(ctx, t, s, "by-policy", result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, s.Worker("by-policy"))
	requireOneDeletion(t, s, s.Worker("by-policy"))
	requireUnlocked(ctx, t, s, "by-policy")
	for _, name := range []string{"annotated", "theirs"} {
		require.Eventually(t, func() bool { return !annotated(ctx, t, s, name) && s.Worker(name).BMC.Power() }, patience, 100*time.Millisecond, "the actuator is done with %s", name)
		d := must.Do(s.Cluster.NodeDeletions(name))(t)
		require.NotEmpty(t, d, name)
		for _, one := range d {
			assert.Equal(t, scene.ActuatorUser, one.User, name)
		}
		_, off := operator.Switched(name)
		assert.Positive(t, off, "the bare-metal operator switched %s off", name)
		requireNoRun(ctx, t, s, name)
	}
	for _, name := range []string{"healthy-1", "healthy-2", "healthy-3"} {
		requireNotAsked(ctx, t, s, name)
	}
}

// A documented check that is handed over is fenced's, while the controllers of a stock OpenShift
// cluster live on. They do nothing about it.
func TestOpenShiftHandedOver(t *testing.T) { // I22
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Checks: []rig.Check{},
		Workers: []scene.Spec{
			{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy-1", Protocol: scene.Redfish, Metal3: true}, {Name: "healthy-2", Protocol: scene.IPMI, Metal3: true},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Management.Apply(ctx, soon(t, "openshift-handed-over")))
	operator := stockOpenShift(ctx, t, s)
	must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	requireUnlocked(ctx, t, s, w.Name)
	assert.False(t, annotated(ctx, t, s, w.Name))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		check, err := s.Management.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace).Get(ctx, "metal", metav1.GetOptions{})
		if assert.NoError(c, err) {
			healthy, _, _ := unstructured.NestedInt64(check.Object, "status", "currentHealthy")
			assert.EqualValues(c, 3, healthy, "fenced writes the status")
		}
	}, patience, 200*time.Millisecond)
	for _, name := range []string{"healthy-1", "healthy-2"} {
		untouched(ctx, t, s, s.Worker(name))
		on, off := operator.Switched(name)
		assert.Zero(t, on+off, "somebody switched %s", name)
	}
}

// requireUnlocked checks that a host is on, and that fenced's power lock is gone.
func requireUnlocked(ctx context.Context, t *testing.T, s *scene.Scene, name string) {
	t.Helper()
	host := must.Do(s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{}))(t)
	assert.NotContains(t, host.GetAnnotations(), "reboot.metal3.io/fenced", "the power lock is gone")
	assert.True(t, s.Worker(name).BMC.Power(), "%s is on", name)
}

// requireNoRun checks that fenced never began a run of a node.
func requireNoRun(ctx context.Context, t *testing.T, s *scene.Scene, name string) {
	t.Helper()
	runs := must.Do(s.Timeline(ctx, name))(t)
	assert.Empty(t, runs, "runs of %s", name)
}

// A bare-metal operator that does not honour the power lock switches the host on again
// at once. Then nothing proves the host off, and no Node is deleted: the power lock is
// what lets fenced win in TestStockOpenShift.
func TestOperatorThatIgnoresThePowerLock(t *testing.T) { // I1
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Set: []string{"power.offDeadline=12s"},
		Workers: []scene.Spec{
			{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	operator := &scene.Metal3{IgnoresLocks: true}
	s.RunMetal3(operator)
	must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultWaiting))
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
	s := onStandIn(t, scene.Options{
		Checks: []rig.Check{check}, BootDelay: 15 * time.Second,
		Set: []string{"power.nodeReadyTimeout=15s", "power.offDeadline=15s", "power.retryInterval=5s"},
		Workers: []scene.Spec{
			{Name: "unwanted", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	operator := &scene.Metal3{}
	s.RunMetal3(operator)
	must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("unwanted")
	w.Kubelet.Hang()
	awaitRun(ctx, t, s, w.Name, func(r wire.RunRecord) bool { return slices.Contains(stepsOf(r), "PowerOn") })
	online := func(yes bool) {
		t.Helper()
		must.Do(s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).
			Patch(ctx, w.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"online":%t}}`, yes), metav1.PatchOptions{}))(t)
	}
	online(false)
	awaitRun(ctx, t, s, w.Name, func(r wire.RunRecord) bool { return r.Result == wire.ResultWaiting && r.Reason == "PowerForbidden" })
	assert.False(t, w.BMC.Power(), "its owner wants it off")
	online(true)
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
}

// Metal3's own remediation (CAPM3 at 2f6d76b) begins before fenced has switched the host on: it requests that the host is
// off, and takes it for off. fenced sends no On under that request, and goes on when it is gone. While the
// Metal3Remediation exists fenced begins nothing more: CAPM3 tries again, deletes the Node itself, and gives up.
func TestMetal3sOwnRemediationMidRun(t *testing.T) { // I20, I22
	t.Parallel()
	s := clusterAPIScene(t, scene.Options{ // no check names the requests of that kind
		StandIn:       inMemory,
		ClusterChecks: []rig.CAPICheck{handedOver()}, Set: []string{"power.retryInterval=5s"},
		Workers: []scene.Spec{
			{Name: "taken", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Management.InstallCRDs(ctx, rig.Metal3Remediation))
	must.Do(s.Management.CreateTemplate(ctx, "reboot"))(t)
	operator := &scene.Metal3{}
	operator.FallBehind(true) // CAPM3 still reads On
	s.RunMetal3(operator)
	require.NoError(t, s.RunMetal3Remediations(ctx))
	programs := must.Do(builds())(t)
	d := must.Do(s.Launch(programs.Failpoints, "FENCED_FAILPOINTS="+points(t, "after-save-run-PowerOn")))(t) // the Node is deleted
	w := s.Worker("taken")
	w.Kubelet.Hang()
	must.Do(d.Wait(ctx))(t)
	require.True(t, d.Killed())
	request := must.Do(s.Management.CreateRemediation(ctx, ofClusterAPI(ctx, t, s, "machines", w.Name), "reboot"))(t)
	asked := func() bool { return hasNote(ctx, t, s, w.Name, scene.Metal3PowerRequest+string(request.GetUID())) }
	require.Eventually(t, asked, patience, 100*time.Millisecond, "CAPM3 requests that the host is off")
	must.Do(s.StartDaemon(ctx))(t)
	r := awaitRun(ctx, t, s, w.Name, func(r wire.RunRecord) bool { return r.Result == wire.ResultWaiting && r.Reason == "PowerForbidden" })
	assert.Contains(t, r.Note, scene.Metal3PowerRequest+string(request.GetUID()))
	sent := sentTo(t, w)
	time.Sleep(8 * time.Second) // what should not happen has time to
	assert.Equal(t, sent, sentTo(t, w), "fenced sends nothing")
	assert.False(t, w.BMC.Power(), "another remediator takes it for off")

	operator.FallBehind(false)
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	fencedLeavesItToMetal3(ctx, t, s, operator, w)
}

// fencedLeavesItToMetal3 lets the time of CAPM3's first attempt end, and that of its second one.
func fencedLeavesItToMetal3(ctx context.Context, t *testing.T, s *scene.Scene, operator *scene.Metal3, w *scene.Worker) {
	t.Helper()
	capm3 := provider{on: s.Management, kind: rig.RemediationResource, namespace: rig.Namespace}
	done := func(obj *unstructured.Unstructured) bool {
		return phaseOf(obj) == "Waiting" && len(obj.GetFinalizers()) == 0
	}
	late := func() {
		t.Helper()
		began := map[string]any{"lastRemediated": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}
		require.NoError(t, s.Management.SetStatus(ctx, rig.RemediationResource, w.Name, began))
	}
	capm3.await(ctx, t, w.Name, "is done with the Node", done)
	sent := sentTo(t, w)
	operator.FallBehind(true)
	late()
	contested := func() string {
		t.Helper()
		require.Eventually(t, func() bool {
			x, err := s.Explain(ctx, w.Name)
			return err == nil && x.Verdict == "Unhealthy" && x.Refused == "Contested"
		}, patience, 200*time.Millisecond, "fenced leaves it to CAPM3")
		_, value, _, _ := gateOf(t, awaitRefusal(ctx, t, s, w.Name, "Contested"), "Contested")
		return value
	}
	assert.Regexp(t, "Metal3Remediation "+rig.Namespace+"/"+w.Name+"|"+scene.Metal3PowerRequest, contested())
	requireOneDeletion(t, s, w)
	operator.FallBehind(false)
	require.Eventually(t, func() bool { return len(deleters(t, s, w)) == 2 }, patience, 200*time.Millisecond, "CAPM3 deletes the Node")
	capm3.await(ctx, t, w.Name, "is done with the Node again", done)
	node := must.Do(s.Cluster.WaitNode(ctx, w.Name, scene.IsReady))(t)
	assert.Equal(t, []string{"the cordon", "taint " + scene.WornTaint}, w.Undressed(node), "CAPM3 restores neither")

	w.Kubelet.Hang()
	assert.Contains(t, contested(), "Metal3Remediation "+rig.Namespace+"/"+w.Name, "nobody wants the host off now")
	late()
	capm3.await(ctx, t, w.Name, "has failed", func(obj *unstructured.Unstructured) bool { return phaseOf(obj) == "Deleting machine" })
	assert.Equal(t, "False", conditionIn(ofClusterAPI(ctx, t, s, "machines", w.Name), "OwnerRemediated", deprecated...))
	assert.True(t, hasNote(ctx, t, s, w.Name, scene.Metal3Unhealthy))
	assert.Equal(t, sent, sentTo(t, w), "fenced sent nothing more")
	runs := must.Do(s.Timeline(ctx, w.Name))(t)
	assert.Len(t, runs, 1)
	assert.Equal(t, []string{rig.FencedUser, scene.Metal3RemediationUser}, deleters(t, s, w))
}

// sentTo is how often Off and On were sent to a BMC.
func sentTo(t *testing.T, w *scene.Worker) [2]int {
	t.Helper()
	sent := goBMC(t, w).Counts()
	return [2]int{sent.Off, sent.On}
}

// hasNote reports whether a BareMetalHost has an annotation.
func hasNote(ctx context.Context, t *testing.T, s *scene.Scene, host, key string) bool {
	t.Helper()
	h := must.Do(s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, host, metav1.GetOptions{}))(t)
	_, is := h.GetAnnotations()[key]
	return is
}

// deleters are the users that have deleted a Node, in order.
func deleters(t *testing.T, s *scene.Scene, w *scene.Worker) (users []string) {
	t.Helper()
	all := must.Do(s.Cluster.NodeDeletions(w.Name))(t)
	for _, d := range all {
		users = append(users, d.User)
	}
	return users
}

func phaseOf(obj *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
	return phase
}

// medik8s' controllers keep away from a Node while fenced has it, and fenced while they
// have it. A stand-in holds their Leases: it is no controller.
func TestNodeLeaseOfMedik8s(t *testing.T) { // I22
	t.Parallel()
	s := onStandIn(t, scene.Options{
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
	must.Do(s.StartDaemon(ctx))(t)
	hung, theirs := s.Worker("hung"), s.Worker("theirs")
	hung.Kubelet.Hang()
	theirs.Kubelet.Hang()

	awaitOff(t, hung)
	held := nodeLeaseOf(ctx, t, s, hung.Name)
	require.NotNil(t, held, "the host is off, and the run open")
	assert.Contains(t, *held.Spec.HolderIdentity, "fenced-")
	assert.Empty(t, held.OwnerReferences, "it must outlive the Node")
	r := awaitRun(ctx, t, s, hung.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, hung)
	require.Eventually(t, func() bool { return nodeLeaseOf(ctx, t, s, hung.Name) == nil }, patience, 200*time.Millisecond, "it is given back")

	x := awaitRefusal(ctx, t, s, theirs.Name, "Contested")
	_, value, _, _ := gateOf(t, x, "Contested")
	assert.Contains(t, value, lease.Holder)
	assert.True(t, theirs.BMC.Power(), "it is on")
	lease.Renewed = time.Now().Add(-2 * time.Hour)
	require.NoError(t, s.Cluster.PutLease(ctx, lease))
	awaitRun(ctx, t, s, theirs.Name, result(wire.ResultDone))
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
