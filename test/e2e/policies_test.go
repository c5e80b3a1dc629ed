package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// Beside the documented policies: a host that has lost its power is not waited for, a limit is
// zero, and a policy selects nothing.
const policies = `
---
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: basement}
spec:
  nodeSelector: {matchLabels: {scene/pool: basement}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 20m}]
  strategy: PowerCycle
  shortenOnEvidence: true
---
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: attic}
spec:
  nodeSelector: {matchLabels: {scene/pool: attic}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  limit: 30%
  strategy: PowerCycle
---
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: nowhere}
spec:
  nodeSelector: {matchLabels: {scene/pool: nowhere}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  strategy: PowerCycle
`

// FencePolicies and a DisruptionBudget from policies.d, in a cluster without any custom resource. Of
// the documented racks one Node may be down at a time; the pets count among them and are never touched.
func TestFencePolicies(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Policies: map[string]string{"house.yaml": string(soon(t, "plain")) + policies},
		Workers: []scene.Spec{
			{Name: "rack-1", Pool: "racks", Protocol: scene.Redfish}, {Name: "rack-2", Pool: "racks", Protocol: scene.IPMI},
			{Name: "pet", Pool: "pets", Protocol: scene.IPMI}, {Name: "unplugged", Pool: "basement", Protocol: scene.IPMI},
			{Name: "forgotten", Pool: "basement", Protocol: scene.IPMI}, {Name: "attic-1", Pool: "attic", Protocol: scene.IPMI},
			{Name: "well", Pool: "racks", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	requireCoverage(ctx, t, s)

	rack1, rack2, unplugged := s.Worker("rack-1"), s.Worker("rack-2"), s.Worker("unplugged")
	taint, wit := watchTaint(t, s, rack1), watchBMC(t, rack1)
	ignoreOn(rack1, true) // it stays away until the other one was seen to wait
	rack1.Kubelet.Hang()
	s.Worker("pet").Kubelet.Hang()
	s.Worker("forgotten").Kubelet.Hang()
	require.NoError(t, unplugged.BMC.SetPower(false))
	awaitOff(t, rack1)
	rack2.Kubelet.Hang()
	requireBudgetStops(ctx, t, s, rack2)
	requirePetSpared(ctx, t, s)

	ignoreOn(rack1, false)
	r := awaitRun(ctx, t, s, rack1.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireRebooted(ctx, t, s, rack1)
	require.True(t, wit.saidOn())
	wit.requireOffAt(t, taint.first(t))
	awaitOff(t, rack2) // the budget has room again
	assert.True(t, rack2.FirstAsked().After(r.Ended), "the second rack waited for the first")

	r = awaitRun(ctx, t, s, unplugged.Name, result(wire.ResultDone))
	assert.Contains(t, r.Trigger, "BMC reads Off")
	requireBack(ctx, t, s, unplugged)
	requireOneDeletion(t, s, unplugged)
	x := must.Do(s.Explain(ctx, "forgotten"))(t)
	assert.Equal(t, "Pending", x.Verdict, "a host that is on is waited for")
	assert.Greater(t, time.Until(x.Earliest), 10*time.Minute)
	assert.True(t, s.Worker("forgotten").BMC.Power())
	untouched(ctx, t, s, s.Worker("forgotten"))
	requireNotAsked(ctx, t, s, "pet", "well", "attic-1")
}

// requireCoverage checks what check-config says of the file.
func requireCoverage(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	checks := covered(ctx, t, s, 2)
	targets := map[string]int{}
	for name, k := range checks {
		assert.Equal(t, "Active", k.State, name)
		assert.Contains(t, k.Source, "house.yaml:", name)
		targets[name] = k.Targets
	}
	assert.Equal(t, map[string]int{"racks": 4, "pets": 1, "one-rack": 3, "basement": 2, "attic": 1, "nowhere": 0}, targets)
	assert.Equal(t, []wire.Overlap{{Check: "FencePolicy pets", Targets: 1}}, checks["racks"].Overlaps)
	assert.Equal(t, "DisruptionBudget", checks["one-rack"].Kind)
	codes := map[string][]string{}
	for name, k := range checks {
		for _, f := range k.Findings {
			assert.True(t, f.Warning, "%s: %s", name, f.Code)
			codes[name] = append(codes[name], f.Code)
		}
	}
	assert.Equal(t, map[string][]string{"nowhere": {"SelectsNothing"}, "attic": {"LimitIsZero"}}, codes)
}

// requireBudgetStops checks that a Node that is down must wait for another.
func requireBudgetStops(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	x := awaitRefusal(ctx, t, s, w.Name, "Budget")
	assert.Equal(t, "Unhealthy", x.Verdict)
	_, value, threshold, source := gateOf(t, x, "Budget")
	assert.Equal(t, "2 of 3 unavailable", value)
	assert.Equal(t, "at most 1 (1)", threshold)
	assert.Equal(t, "DisruptionBudget one-rack", source)
	a := planned(ctx, t, s, w.Name, "Budget", 0)
	assert.Equal(t, []string{"FencePolicy racks", "PowerCycle"}, []string{a.Check, a.Action})
	requireNotAsked(ctx, t, s, w.Name)
}

// requirePetSpared checks that a policy that would fence a pet is overruled.
func requirePetSpared(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	x := awaitRefusal(ctx, t, s, "pet", "Overlap")
	assert.Equal(t, "Unhealthy", x.Verdict)
	_, value, _, source := gateOf(t, x, "Overlap")
	assert.Equal(t, []string{"this check only counts", "check pets"}, []string{value, source})
	planned(ctx, t, s, "pet", "Overlap", 0)
}

// A NodeHealthCheck over Nodes that no Machine claims: nothing is done while the
// cluster is upgraded, then one host is fenced, and the next one only when the
// first is back, because minHealthy asks for that.
func TestNodeHealthCheck(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{rig.Medik8s, rig.ClusterVersions},
		NodeChecks: []rig.NodeCheck{{
			Name: "metal", Match: scene.Pool(scene.MetalPool), Conditions: rig.NotReadyFor("2s"), MinHealthy: "51%", Template: ownTemplate,
		}},
		Workers: []scene.Spec{
			{Name: "first", Protocol: scene.Redfish}, {Name: "second", Protocol: scene.IPMI}, {Name: "third", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.PutClusterVersion(ctx, true))
	must.Do(s.StartDaemon(ctx))(t)
	k := covered(ctx, t, s, 0)["metal"]
	assert.Equal(t, []any{"NodeHealthCheck", "", "cluster", "Active", 3, 1},
		[]any{k.Kind, k.Namespace, k.Source, k.State, k.Targets, k.MaxUnhealthy})

	first, second := s.Worker("first"), s.Worker("second")
	ignoreOn(first, true) // it stays away until the second one was seen to wait
	first.Kubelet.Hang()
	requireUpgradeStops(ctx, t, s, first)
	require.NoError(t, s.Cluster.PutClusterVersion(ctx, false))
	awaitOff(t, first)
	second.Kubelet.Hang()
	x := awaitRefusal(ctx, t, s, second.Name, "ShortCircuit")
	assert.Equal(t, "Unhealthy", x.Verdict)
	requireNotAsked(ctx, t, s, second.Name)

	ignoreOn(first, false)
	r := awaitRun(ctx, t, s, first.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	assert.Empty(t, r.Machine)
	requireBack(ctx, t, s, first)
	requireOneDeletion(t, s, first)
	awaitOff(t, second) // there are enough healthy ones again
	assert.True(t, second.FirstAsked().After(r.Ended), "the second host waited for the first")
	requireNotAsked(ctx, t, s, "third")
}

// requireUpgradeStops checks that a sick Node is left alone, and that everybody
// is told why.
func requireUpgradeStops(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	x := awaitRefusal(ctx, t, s, w.Name, "ClusterUpgrading")
	assert.Equal(t, "Unhealthy", x.Verdict)
	name, value, _, source := gateOf(t, x, "ClusterUpgrading")
	assert.Equal(t, "upgrade", name)
	assert.Contains(t, value, "Progressing")
	assert.Equal(t, "check metal", source)
	a := planned(ctx, t, s, w.Name, "ClusterUpgrading", 0)
	assert.Equal(t, "NodeHealthCheck metal", a.Check)
	assert.Equal(t, 1, a.Order)
	assert.Empty(t, a.Machine)
	time.Sleep(2 * time.Second) // what should not happen has time to
	requireNotAsked(ctx, t, s, w.Name)
}

const controlPlanePolicy = `apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: control-plane}
spec:
  nodeSelector: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  strategy: PowerCycle
`

// Three control-plane hosts with an etcd member each, as kubeadm has them: one
// that is lost is fenced, by the taint, so that its Node stays; of two that are
// lost neither is touched, because etcd has no quorum to spare.
func TestControlPlaneKeepsItsQuorum(t *testing.T) {
	t.Parallel()
	member := func(name string, p scene.Protocol) scene.Spec {
		return scene.Spec{Name: name, Pool: "masters", Role: scene.ControlPlane, Etcd: true, Protocol: p}
	}
	s := onStandIn(t, scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Policies: map[string]string{"control-plane.yaml": controlPlanePolicy},
		Workers: []scene.Spec{
			member("master-1", scene.Redfish), member("master-2", scene.IPMI), member("master-3", scene.IPMI),
			{Name: "worker", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("master-1")
	taint, wit := watchTaint(t, s, w), watchBMC(t, w)
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireRebooted(ctx, t, s, w)
	require.True(t, wit.saidOn())
	wit.requireOffAt(t, taint.first(t))

	code := must.Do(d.Terminate(ctx))(t)
	require.Zero(t, code)
	lost := []string{"master-2", "master-3"}
	for _, name := range lost {
		s.Worker(name).Kubelet.Hang()
	}
	for _, name := range lost { // fenced comes back last, so that it never sees only one of them lost
		must.Do(s.Cluster.WaitNode(ctx, name, unknown))(t)
	}
	must.Do(s.StartDaemon(ctx))(t)
	for _, name := range lost {
		x := awaitRefusal(ctx, t, s, name, "QuorumLost")
		assert.Equal(t, "Unhealthy", x.Verdict)
		planned(ctx, t, s, name, "QuorumLost", 0)
	}
	time.Sleep(3 * time.Second) // what should not happen has time to
	requireNotAsked(ctx, t, s, append(lost, "worker")...)
	requireRebooted(ctx, t, s, w)
}

// What fenced finds is written into the status of an OpenShift check as its own
// controller would, with an event when the limit is passed, unless that
// controller is alive, and never twice the same.
func TestStatusIsWrittenBack(t *testing.T) {
	t.Parallel()
	k := scene.Metal("2s")
	k.MaxUnhealthy = "40%"
	s := set(t, scene.Options{Checks: []rig.Check{k}, Workers: []scene.Spec{
		{Name: "a", Protocol: scene.IPMI}, {Name: "b", Protocol: scene.IPMI}, {Name: "c", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	judge := rig.Lease{Namespace: rig.Namespace, Name: "cluster-api-provider-healthcheck-leader", Holder: "judge-0", Duration: 10 * time.Minute}
	require.NoError(t, s.Cluster.PutLease(ctx, judge))
	must.Do(s.StartDaemon(ctx))(t)
	requireGoodStatus(ctx, t, s)
	time.Sleep(3 * time.Second) // what should not happen has time to
	require.Empty(t, writes(t, s.Cluster, "machinehealthchecks"), "the judge is alive")

	judge.Renewed = time.Now().Add(-time.Hour)
	require.NoError(t, s.Cluster.PutLease(ctx, judge))
	written := awaitStatus(ctx, t, s, 3, 3, 1, "True")
	time.Sleep(4 * time.Second) // what should not happen has time to
	require.Equal(t, written.GetResourceVersion(), checkObject(ctx, t, s).GetResourceVersion(), "nothing changed")
	require.Empty(t, eventsOn(ctx, t, s))

	nothing := []byte(`{"spec":{"maxUnhealthy":0}}`)
	must.Do(s.Cluster.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace).
		Patch(ctx, "workers", types.MergePatchType, nothing, metav1.PatchOptions{}))(t)
	awaitStatus(ctx, t, s, 3, 3, 0, "True")

	w := s.Worker("a")
	w.Kubelet.Hang()
	restricted := awaitStatus(ctx, t, s, 3, 2, 0, "False")
	c := allowedCondition(t, restricted)
	assert.Equal(t, []any{"TooManyUnhealthy", "Warning"}, []any{c["reason"], c["severity"]})
	awaitEvents(ctx, t, s, "Warning RemediationRestricted")
	awaitRefusal(ctx, t, s, w.Name, "ShortCircuit")
	rebootByHand(ctx, t, s, w)
	awaitStatus(ctx, t, s, 3, 3, 0, "True")
	awaitEvents(ctx, t, s, "Warning RemediationRestricted", "Normal RemediationAllowed")

	time.Sleep(2 * time.Second) // what should not happen has time to
	patch := write{"patch", "machinehealthchecks", "status", "workers"}
	assert.Equal(t, []write{patch, patch, patch, patch}, writes(t, s.Cluster, "machinehealthchecks"), "one write for each change")
	awaitEvents(ctx, t, s, "Warning RemediationRestricted", "Normal RemediationAllowed")
	requireNotAsked(ctx, t, s, "a", "b", "c")
}

// rebootByHand switches a host off and on again, behind the back of everybody.
func rebootByHand(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	require.NoError(t, w.BMC.SetPower(false))
	require.Eventually(t, func() bool { return w.Kubelet.BootID() == "" }, patience, 20*time.Millisecond, "the host stopped")
	require.NoError(t, w.BMC.SetPower(true))
	must.Do(s.Cluster.WaitNode(ctx, w.Name, scene.IsReady))(t)
}

func checkObject(ctx context.Context, t *testing.T, s *scene.Scene) *unstructured.Unstructured {
	t.Helper()
	return must.Do(s.Cluster.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace).Get(ctx, "workers", metav1.GetOptions{}))(t)
}

// awaitStatus waits for the counters and the condition of the check.
func awaitStatus(ctx context.Context, t *testing.T, s *scene.Scene, expected, healthy, more int, allowed string) *unstructured.Unstructured {
	t.Helper()
	want := map[string]any{"expectedMachines": int64(expected), "currentHealthy": int64(healthy), "remediationsAllowed": int64(more)}
	var obj *unstructured.Unstructured
	require.Eventually(t, func() bool {
		obj = checkObject(ctx, t, s)
		status, _, _ := unstructured.NestedMap(obj.Object, "status")
		for key, value := range want {
			if status[key] != value {
				return false
			}
		}
		return conditionIn(obj, "RemediationAllowed", "status", "conditions") == allowed
	}, patience, 100*time.Millisecond, "status %v with RemediationAllowed %s", want, allowed)
	return obj
}

func allowedCondition(t *testing.T, obj *unstructured.Unstructured) map[string]any {
	t.Helper()
	list, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions")
	require.NoError(t, err)
	require.Len(t, list, 1)
	c, _ := list[0].(map[string]any)
	return c
}

// eventsOn are the Kubernetes Events about the check.
func eventsOn(ctx context.Context, t *testing.T, s *scene.Scene) []string {
	t.Helper()
	list := must.Do(s.Cluster.Client().CoreV1().Events(rig.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=MachineHealthCheck,involvedObject.name=workers",
	}))(t)
	var found []string
	for i := range list.Items {
		e := &list.Items[i]
		assert.Equal(t, "fenced", e.Source.Component)
		found = append(found, e.Type+" "+e.Reason)
	}
	return found
}

// awaitEvents waits until there are exactly these Events, in any order.
func awaitEvents(ctx context.Context, t *testing.T, s *scene.Scene, want ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.ElementsMatch(c, want, eventsOn(ctx, t, s))
	}, patience, 100*time.Millisecond)
}
