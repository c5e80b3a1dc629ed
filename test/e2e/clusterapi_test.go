package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// ownTemplate is of the kind whose requests fenced carries out itself; no such
// object need exist.
var ownTemplate = rig.TemplateRef{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediationTemplate", Name: "power"}

// handedOver is a check of the bare-metal workers whose own controller is told
// to leave it to this fenced.
func handedOver() rig.CAPICheck {
	return rig.CAPICheck{
		Name: "metal", Match: scene.Pool(scene.MetalPool), Conditions: rig.NotReadyFor("2s"), Template: ownTemplate,
		Annotations: map[string]string{"cluster.x-k8s.io/paused": "", "fenced.io/evaluator": scene.Instance},
	}
}

// unhanded is a check of a pool that hands Machines to their owners.
func unhanded(pool string) rig.CAPICheck {
	return rig.CAPICheck{Name: pool, Match: scene.Pool(pool), Conditions: rig.NotReadyFor("2s")}
}

// The Cluster API with Machines, checks and hosts on a management API and the
// Nodes on another: a host is fenced by power, and its Node is deleted where it
// is. Meanwhile the Cluster API's own manager is alive, and what it would do
// itself is left to it; once it is gone, fenced marks those Machines, once, and
// deletes none.
func TestClusterAPIOnTwoAPIs(t *testing.T) {
	t.Parallel()
	s := clusterAPIScene(t, scene.Options{
		Apart: true, ClusterChecks: []rig.CAPICheck{handedOver(), unhanded("cloud"), unhanded("control-plane")},
		Workers: []scene.Spec{
			{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy", Protocol: scene.Redfish, Metal3: true},
			{Name: "cloud-1", Pool: "cloud"}, {Name: "master-1", Pool: "control-plane", Role: scene.ControlPlane},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Management.CreateNamespace(ctx, "capi-system"))
	manager := rig.Lease{Namespace: "capi-system", Name: "controller-leader-election-capi", Holder: "manager-0", Duration: 10 * time.Minute}
	require.NoError(t, s.Management.PutLease(ctx, manager))
	must.Do(s.StartDaemon(ctx))(t)
	for _, name := range []string{"hung", "cloud-1", "master-1"} {
		s.Worker(name).Kubelet.Hang()
	}

	w := s.Worker("hung")
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	for _, other := range s.Workers {
		d := must.Do(s.Management.NodeDeletions(other.Name))(t)
		assert.Empty(t, d, "deletions of Node %s on the management API", other.Name)
	}
	host := must.Do(s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, w.Name, metav1.GetOptions{}))(t)
	assert.NotContains(t, host.GetAnnotations(), "reboot.metal3.io/fenced", "the host is not held off")
	requireNotAsked(ctx, t, s, "healthy")

	for _, name := range []string{"cloud-1", "master-1"} {
		x := awaitRefusal(ctx, t, s, name, "Contested")
		assert.Equal(t, "Unhealthy", x.Verdict)
		_, value, _, _ := gateOf(t, x, "Contested")
		assert.Contains(t, value, manager.Holder)
		planned(ctx, t, s, name, "Contested", 0)
	}
	for _, other := range writesBut(t, s.Management, "machines", w.Name) { // the manager is alive
		require.Equal(t, write{"patch", "machines", "status", "healthy"}, other, "only HealthCheckSucceeded of the check that was handed over")
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // each where the object is
		assert.Equal(c, nodeCourse, ofRuns(describedNode(ctx, t, s.Cluster, w.Name)))
		assert.Equal(c, nodeCourse, ofRuns(described(ctx, t, s.Management, ofClusterAPI(ctx, t, s, "machines", w.Name))))
		assert.Empty(c, marksOf(ofClusterAPI(ctx, t, s, "machines", w.Name).GetAnnotations())[0])
	}, patience, 200*time.Millisecond)
	patch := write{"patch", "machines", "", w.Name}
	require.Contains(t, writes(t, s.Management, "machines"), patch, "the Machine was marked while the run lasted")
	requireCounters(ctx, t, s)

	manager.Renewed = time.Now().Add(-time.Hour)
	require.NoError(t, s.Management.PutLease(ctx, manager))
	for _, name := range []string{"cloud-1", "master-1"} {
		awaitMarked(ctx, t, s, name)
		awaitRefusal(ctx, t, s, name, "AlreadyRequested")
	}
	time.Sleep(3 * time.Second) // what should not happen again has time to
	requireMarkedOnce(t, s)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Contains(c, described(ctx, t, s.Management, ofClusterAPI(ctx, t, s, "machines", "cloud-1")), "Normal MachineMarkedUnhealthy")
		assert.Contains(c, describedNode(ctx, t, s.Cluster, "cloud-1"), "Normal MachineMarkedUnhealthy")
	}, patience, 200*time.Millisecond)
}

func clusterAPIScene(t *testing.T, o scene.Options) *scene.Scene {
	t.Helper()
	o.Machines, o.CRDs = scene.ClusterAPI, []rig.CRDs{rig.CAPIv1beta2, rig.Metal3}
	return set(t, o)
}

// deprecated is where the list of conditions of v1beta1 is kept beside the one that counts.
var deprecated = []string{"status", "deprecated", "v1beta1", "conditions"}

// conditionIn is the status of a condition in one list; empty is none.
func conditionIn(obj *unstructured.Unstructured, kind string, path ...string) string {
	list, _, _ := unstructured.NestedSlice(obj.Object, path...)
	for _, item := range list {
		if m, _ := item.(map[string]any); m["type"] == kind {
			status, _ := m["status"].(string)
			return status
		}
	}
	return ""
}

func ofClusterAPI(ctx context.Context, t *testing.T, s *scene.Scene, plural, name string) *unstructured.Unstructured {
	t.Helper()
	return must.Do(s.Management.Dynamic().Resource(rig.CAPIResource("v1beta2", plural)).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{}))(t)
}

// awaitMarked waits until a Machine asks its owner to replace it, in both lists.
func awaitMarked(ctx context.Context, t *testing.T, s *scene.Scene, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		m := ofClusterAPI(ctx, t, s, "machines", name)
		for _, path := range [][]string{deprecated, {"status", "conditions"}} {
			if conditionIn(m, "HealthCheckSucceeded", path...) != "False" || conditionIn(m, "OwnerRemediated", path...) != "False" {
				return false
			}
		}
		return true
	}, patience, 200*time.Millisecond, "Machine %s is marked", name)
}

// requireMarkedOnce checks what the management API's own audit log says about
// the Machines: on each of the two one mark, and before it at most one verdict.
func requireMarkedOnce(t *testing.T, s *scene.Scene) {
	t.Helper()
	patches := map[string]int{}
	for _, w := range writesBut(t, s.Management, "machines", "hung") {
		assert.Equal(t, write{"patch", "machines", "status", w.name}, w)
		patches[w.name]++
	}
	for _, name := range []string{"cloud-1", "master-1"} {
		assert.Contains(t, []int{1, 2}, patches[name], "writes to %s", name)
	}
	// Where the whole machine hangs, its Node is not Ready for a while, of which fenced tells: then there is a verdict more at each end.
	assert.LessOrEqual(t, patches["healthy"], 1+len(entriesOf(t, filepath.Join(filepath.Dir(s.Config()), "audit.jsonl"), "healthy")), "writes to healthy")
	for _, w := range s.Workers {
		d := must.Do(s.Management.Deletions("machines", w.Name))(t)
		assert.Empty(t, d, "deletions of Machine %s", w.Name)
	}
}

// requireCounters checks that only the check that was handed over has a status
// while the manager lives, and that it is right.
func requireCounters(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	require.Eventually(t, func() bool {
		k := ofClusterAPI(ctx, t, s, "machinehealthchecks", "metal")
		expected, _, _ := unstructured.NestedInt64(k.Object, "status", "expectedMachines")
		healthy, _, _ := unstructured.NestedInt64(k.Object, "status", "currentHealthy")
		targets, _, _ := unstructured.NestedStringSlice(k.Object, "status", "targets")
		return expected == 2 && healthy == 2 && assert.ObjectsAreEqual([]string{"healthy", "hung"}, targets) &&
			conditionIn(k, "RemediationAllowed", "status", "conditions") == "True"
	}, patience, 200*time.Millisecond, "the status of the check that was handed over")
	k := ofClusterAPI(ctx, t, s, "machinehealthchecks", "cloud")
	assert.NotContains(t, k.Object, "status", "that of a check that the manager judges")
}

// clusterAPIManager is the account of the manager.
const clusterAPIManager = "system:serviceaccount:capi-system:capi-manager"

// managed is set for a scene in which the real manager of the Cluster API makes the Machines, with
// fenced's kinds, and the right to make them, as docs/systems/cluster-api.md installs them.
func managed(t *testing.T, o scene.Options) *scene.Scene {
	t.Helper()
	o.Machines, o.CRDs = scene.ManagedClusterAPI, []rig.CRDs{rig.Fenced}
	s := set(t, o)
	ctx := within(t)
	require.False(t, managerMayAsk(ctx, t, s), "the manager has only the rights of its own roles")
	require.NoError(t, s.Management.ApplyConfig(ctx, "crds/rbac.yaml"))
	require.Eventually(t, func() bool { return managerMayAsk(ctx, t, s) }, patience, 100*time.Millisecond, "the right to make requests is aggregated")
	require.NoError(t, s.Management.Apply(ctx, documented(t, "template")))
	return s
}

// managerMayAsk reports whether the API server lets the manager make requests of fenced.
func managerMayAsk(ctx context.Context, t *testing.T, s *scene.Scene) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: clusterAPIManager,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: requestResource.Group, Resource: requestResource.Resource, Namespace: rig.Namespace, Verb: "create",
		},
	}}
	allowed := false
	require.NoError(t, rig.WhileBusy(ctx, func() error {
		answer, err := s.Management.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		allowed = err == nil && answer.Status.Allowed
		return err
	}))
	return allowed
}

func machineOf(ctx context.Context, t *testing.T, s *scene.Scene, node string) *unstructured.Unstructured {
	t.Helper()
	m := must.Do(s.MachineOf(ctx, node))(t)
	require.NotEmpty(t, m.Object, "a Machine has Node %s", node)
	return m
}

// awaitMachine waits until a spare host has a Machine.
func awaitMachine(ctx context.Context, t *testing.T, s *scene.Scene, node string) {
	t.Helper()
	require.Eventually(t, func() bool {
		m := must.Do(s.MachineOf(ctx, node))(t)
		phase, _, _ := unstructured.NestedString(m.Object, "status", "phase")
		return phase == "Running"
	}, patience, 200*time.Millisecond, "a Machine on host %s", node)
}

// awaitCondition waits until an object of the Cluster API has a condition.
func awaitCondition(ctx context.Context, t *testing.T, s *scene.Scene, plural, name, kind, status string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return conditionIn(ofClusterAPI(ctx, t, s, plural, name), kind, "status", "conditions") == status
	}, patience, 100*time.Millisecond, "%s %s has %s=%s", plural, name, kind, status)
}

// change merges a change into an object of the Cluster API.
func change(ctx context.Context, t *testing.T, s *scene.Scene, plural, name, patch string) {
	t.Helper()
	require.NoError(t, rig.WhileBusy(ctx, func() error {
		_, err := s.Management.Dynamic().Resource(rig.CAPIResource("v1beta2", plural)).Namespace(rig.Namespace).
			Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}))
}

// requireNoRequests checks that nobody has made a request, also none that is gone again.
func requireNoRequests(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	list := must.Do(s.Management.Dynamic().Resource(requestResource).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{}))(t)
	require.Empty(t, list.Items)
	require.Empty(t, writes(t, s.Management, "fencedremediations"))
}

// The Cluster API's manager runs, and its checks were handed over to fenced. It leaves them alone. A host
// without a BMC is marked, once: the MachineSet deletes that Machine and makes another, on a spare
// host. A host with a BMC is power-cycled, and keeps its Machine.
func TestClusterAPIHandedOverByItsManager(t *testing.T) {
	t.Parallel()
	s := managed(t, scene.Options{Workers: []scene.Spec{
		{Name: "cloud-1", Pool: "cloud"}, {Name: "cloud-2", Pool: "cloud"}, {Name: "cloud-3", Pool: "cloud"}, {Name: "spare", Pool: "cloud", Stranger: true},
		{Name: "hung", Protocol: scene.IPMI}, {Name: "well", Protocol: scene.IPMI}, {Name: "fine", Protocol: scene.Redfish},
	}})
	ctx := within(t)
	require.NoError(t, s.Management.Apply(ctx, soon(t, "cluster-api-handed-over")))
	for _, check := range []string{"cloud", "metal"} {
		awaitCondition(ctx, t, s, "machinehealthchecks", check, "Paused", "True")
	}
	lost, kept := machineOf(ctx, t, s, "cloud-1"), machineOf(ctx, t, s, "hung")
	must.Do(s.StartDaemon(ctx))(t)
	checks := covered(ctx, t, s, 0)
	assert.Equal(t, []string{"Active", "Active"}, []string{checks["cloud"].State, checks["metal"].State})
	s.Worker("cloud-1").Kubelet.Hang()
	w := s.Worker("hung")
	w.Kubelet.Hang()

	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	awaitMachine(ctx, t, s, "spare")

	require.Eventually(t, func() bool {
		gone, err := s.Management.Deletions("machines", lost.GetName())
		return err == nil && len(gone) == 1 && gone[0].User == clusterAPIManager
	}, patience, 200*time.Millisecond, "the manager deletes the Machine, once")
	d := must.Do(s.Cluster.NodeDeletions("cloud-1"))(t)
	for _, each := range d {
		assert.NotEqual(t, rig.FencedUser, each.User, "a Node whose host was not switched off")
	}
	assert.Contains(t, writes(t, s.Management, "machines"), write{"patch", "machines", "status", lost.GetName()}, "fenced's mark")
	assert.Equal(t, kept.GetUID(), machineOf(ctx, t, s, w.Name).GetUID(), "a host that was power-cycled keeps its Machine")
	awaitCondition(ctx, t, s, "machinehealthchecks", "cloud", "RemediationAllowed", "True")
	awaitCondition(ctx, t, s, "machinehealthchecks", "cloud", "Paused", "True")
	requireNotAsked(ctx, t, s, "well", "fine")
}

// The Cluster API's manager judges, and fenced executes: the manager makes the request from the
// documented template, fenced power-cycles the host, and the manager deletes the request when the Node
// is well. The Machine stays. A host that does not come on again is handed over to the owner of its Machine: the
// manager's MachineSet, which asked nobody before, replaces it on a spare host, and the request goes with it.
// Machines and Nodes are on an API server each.
func TestClusterAPIManagerAsksFenced(t *testing.T) {
	t.Parallel()
	s := managed(t, scene.Options{Apart: true, Mode: "respond", Workers: []scene.Spec{
		{Name: "hung", Protocol: scene.Redfish}, {Name: "broken", Protocol: scene.Redfish}, {Name: "well", Protocol: scene.IPMI}, {Name: "fine", Protocol: scene.Redfish},
		{Name: "spare", Protocol: scene.IPMI, Stranger: true},
	}})
	ctx := within(t)
	require.NoError(t, s.Management.Apply(ctx, soon(t, "cluster-api")))
	awaitCondition(ctx, t, s, "machinehealthchecks", "metal", "RemediationAllowed", "True")
	d := must.Do(s.StartDaemon(ctx))(t)
	requireNoRequests(ctx, t, s)
	w, q := s.Worker("hung"), ownRequests(s.Management)
	m := machineOf(ctx, t, s, w.Name)
	ignoreOn(w, true) // so that there is time to look
	w.Kubelet.Hang()

	awaitOff(t, w)
	obj := q.get(ctx, t, m.GetName())
	require.NotNil(t, obj, "the request is there while the host is off")
	ignoreOn(w, false)
	assert.True(t, held(obj), "fenced holds the request")
	assert.Equal(t, "Machine", obj.GetOwnerReferences()[0].Kind)
	assert.Equal(t, m.GetUID(), obj.GetOwnerReferences()[0].UID)
	assert.Equal(t, "power", obj.GetAnnotations()["cluster.x-k8s.io/cloned-from-name"])
	limit, _, _ := unstructured.NestedInt64(obj.Object, "spec", "retryLimit")
	assert.Equal(t, int64(2), limit, "the spec is that of the template")

	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	assert.Equal(t, "requested by FencedRemediation "+rig.Namespace+"/"+m.GetName(), r.Trigger)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	q.awaitGone(ctx, t, m.GetName())
	gone := must.Do(s.Management.Deletions("fencedremediations", m.GetName()))(t)
	require.NotEmpty(t, gone)
	for _, each := range gone {
		assert.Equal(t, clusterAPIManager, each.User)
	}
	awaitCondition(ctx, t, s, "machines", m.GetName(), "HealthCheckSucceeded", "True")
	assert.Equal(t, m.GetUID(), machineOf(ctx, t, s, w.Name).GetUID())

	d.Kill()
	programs := must.Do(builds())(t)
	must.Do(s.Launch(programs.Fenced, "FENCED_POWER_ONDEADLINE=12s"))(t)
	w = s.Worker("broken")
	m = machineOf(ctx, t, s, w.Name)
	ignoreOn(w, true)
	w.Kubelet.Hang()
	r = awaitRun(ctx, t, s, w.Name, func(r wire.RunRecord) bool { return !r.Ended.IsZero() })
	assert.Equal(t, []string{wire.ResultReprovisioned, "PowerOnFailed"}, []string{r.Result, r.Reason})
	awaitMachine(ctx, t, s, "spare")
	q.awaitGone(ctx, t, m.GetName())
	gone = must.Do(s.Management.Deletions("machines", m.GetName()))(t)
	require.Len(t, gone, 1)
	assert.Equal(t, clusterAPIManager, gone[0].User)
	requireOneDeletion(t, s, w)
	requireNotAsked(ctx, t, s, "well", "fine")
}

// What stops the manager stops fenced, too: a Cluster that is paused, a check that is paused, more
// unhealthy Machines than the check allows. The manager makes no request, and fenced switches nothing,
// although it evaluates the same check. When nothing stops them any more, the host is power-cycled.
func TestClusterAPIManagerAndFencedStopTogether(t *testing.T) {
	t.Parallel()
	s := managed(t, scene.Options{Workers: []scene.Spec{
		{Name: "hung", Protocol: scene.IPMI}, {Name: "second", Protocol: scene.IPMI}, {Name: "fine", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	require.NoError(t, s.Management.Apply(ctx, soon(t, "cluster-api")))
	awaitCondition(ctx, t, s, "machinehealthchecks", "metal", "RemediationAllowed", "True")
	change(ctx, t, s, "clusters", scene.ClusterName, `{"spec":{"paused":true}}`)
	awaitCondition(ctx, t, s, "machinehealthchecks", "metal", "Paused", "True")
	must.Do(s.StartDaemon(ctx))(t)
	for _, name := range []string{"hung", "second"} {
		s.Worker(name).Kubelet.Hang()
		must.Do(s.Cluster.WaitNode(ctx, name, unknown))(t)
	}
	quiet := func(code string) {
		awaitRefusal(ctx, t, s, "hung", code)
		time.Sleep(5 * time.Second) // what should not happen has time to
		requireNoRequests(ctx, t, s)
		requireNotAsked(ctx, t, s, "hung", "second", "fine")
	}
	quiet("Paused")

	change(ctx, t, s, "machinehealthchecks", "metal", `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`)
	change(ctx, t, s, "clusters", scene.ClusterName, `{"spec":{"paused":false}}`)
	awaitCondition(ctx, t, s, "clusters", scene.ClusterName, "Paused", "False")
	quiet("Paused")

	change(ctx, t, s, "machinehealthchecks", "metal", `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
	awaitCondition(ctx, t, s, "machinehealthchecks", "metal", "RemediationAllowed", "False")
	quiet("ShortCircuit")

	rebootByHand(ctx, t, s, s.Worker("second"))
	w := s.Worker("hung")
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	ownRequests(s.Management).awaitGone(ctx, t, machineOf(ctx, t, s, w.Name).GetName())
	requireNoDeletion(t, s, s.Worker("second"))
}

// pool is a check that deletes the unhealthy Machines of a pool.
func pool(name string, maxUnhealthy any) rig.Check {
	return rig.Check{Name: name, Match: scene.Pool(name), Conditions: rig.NotReadyFor("2s"), MaxUnhealthy: maxUnhealthy}
}

// Pools without the bare-metal annotation: under the documented check, which is handed over, a
// Machine that a controller replaces is deleted, no other is, and beyond maxUnhealthy neither is
// anything deleted nor a host powered off. A stand-in for OpenShift's controller of checks lives.
func TestCloudPoolDeletesMachines(t *testing.T) {
	t.Parallel()
	metal := scene.Metal("2s")
	metal.Name, metal.Match, metal.MaxUnhealthy = "storm-metal", scene.Pool("storm-metal"), "40%"
	s := onStandIn(t, scene.Options{
		Checks: []rig.Check{pool("storm-cloud", int64(1)), metal},
		Workers: []scene.Spec{
			{Name: "owned", Pool: "cloud"}, {Name: "orphan", Pool: "cloud", Orphan: true},
			{Name: "master", Pool: "cloud", Role: "master"}, {Name: "well", Pool: "cloud"},
			{Name: "well-2", Pool: "cloud"}, {Name: "well-3", Pool: "cloud"}, {Name: "well-4", Pool: "cloud"}, {Name: "well-5", Pool: "cloud"},
			{Name: "cloud-1", Pool: "storm-cloud"}, {Name: "cloud-2", Pool: "storm-cloud"}, {Name: "cloud-3", Pool: "storm-cloud"},
			{Name: "metal-1", Pool: "storm-metal", Protocol: scene.IPMI}, {Name: "metal-2", Pool: "storm-metal", Protocol: scene.Redfish},
			{Name: "metal-3", Pool: "storm-metal", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "openshift-cloud")))
	machine := must.Do(s.Cluster.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, "owned", metav1.GetOptions{}))(t)
	for _, name := range []string{"owned", "orphan", "master", "cloud-1", "cloud-2", "metal-1", "metal-2"} {
		s.Worker(name).Kubelet.Hang()
	}
	// The controllers come last, and when the timeout of all is over, so that they never see a storm begin
	// with its first host.
	for _, name := range []string{"cloud-1", "cloud-2", "metal-1", "metal-2"} {
		must.Do(s.Cluster.WaitNode(ctx, name, unknown))(t)
	}
	time.Sleep(4 * time.Second)
	require.NoError(t, s.RunHealthChecks(ctx))
	must.Do(s.StartDaemon(ctx))(t)

	require.Eventually(t, func() bool {
		d, err := s.Cluster.Deletions("machines", "owned")
		return err == nil && len(d) > 0
	}, patience, 100*time.Millisecond, "the Machine that a controller owns is deleted")
	for name, code := range map[string]string{
		"orphan": "NoController", "master": "ControlPlane",
		"cloud-1": "ShortCircuit", "cloud-2": "ShortCircuit", "metal-1": "ShortCircuit", "metal-2": "ShortCircuit",
	} {
		awaitRefusal(ctx, t, s, name, code)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, []string{"Normal RemediationStarted", "Normal MachineDeleted"}, ofRuns(describedNode(ctx, t, s.Cluster, "owned")))
		assert.Contains(c, describedNode(ctx, t, s.Cluster, "orphan"), "Normal SkippedNoController")
		assert.Contains(c, described(ctx, t, s.Cluster, machineObject(ctx, t, s, "orphan")), "Normal SkippedNoController")
		assert.Contains(c, describedNode(ctx, t, s.Cluster, "metal-1"), "Warning RemediationSkipped")
		storm, err := s.Cluster.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace).Get(ctx, "storm-metal", metav1.GetOptions{})
		if assert.NoError(c, err) {
			assert.Contains(c, described(ctx, t, s.Cluster, storm), "Warning RemediationRestricted", "also at the start")
		}
	}, patience, 200*time.Millisecond)
	time.Sleep(3 * time.Second) // what should not happen has time to

	d := must.Do(s.Cluster.Deletions("machines", "owned"))(t)
	require.Len(t, d, 1)
	assert.Equal(t, rig.FencedUser, d[0].User)
	assert.Equal(t, string(machine.GetUID()), d[0].UID, "the UID precondition")
	for _, w := range s.Workers {
		requireNoDeletion(t, s, w)
		if w.Name == "owned" {
			continue
		}
		d := must.Do(s.Cluster.Deletions("machines", w.Name))(t)
		assert.Empty(t, d, "deletions of Machine %s", w.Name)
		if w.BMC != nil {
			assert.True(t, w.BMC.Power(), "%s is on", w.Name)
			assert.Zero(t, w.FirstAsked(), "the BMC of %s was not even asked", w.Name)
		}
	}
}
