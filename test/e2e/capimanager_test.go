package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

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

// machineOf is the Machine of a Node that has one.
func machineOf(ctx context.Context, t *testing.T, s *scene.Scene, node string) *unstructured.Unstructured {
	t.Helper()
	m, err := s.MachineOf(ctx, node)
	require.NoError(t, err)
	require.NotEmpty(t, m.Object, "a Machine has Node %s", node)
	return m
}

// awaitMachine waits until a spare host has a Machine.
func awaitMachine(ctx context.Context, t *testing.T, s *scene.Scene, node string) {
	t.Helper()
	require.Eventually(t, func() bool {
		m, err := s.MachineOf(ctx, node)
		require.NoError(t, err)
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
	list, err := s.Management.Dynamic().Resource(requestResource).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
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
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
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
	d, err := s.Cluster.NodeDeletions("cloud-1")
	require.NoError(t, err)
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
// is well. The Machine stays. Machines and Nodes are on an API server each.
func TestClusterAPIManagerAsksFenced(t *testing.T) {
	t.Parallel()
	s := managed(t, scene.Options{Apart: true, Mode: "respond", Workers: []scene.Spec{
		{Name: "hung", Protocol: scene.Redfish}, {Name: "well", Protocol: scene.IPMI}, {Name: "fine", Protocol: scene.Redfish},
	}})
	ctx := within(t)
	require.NoError(t, s.Management.Apply(ctx, soon(t, "cluster-api")))
	awaitCondition(ctx, t, s, "machinehealthchecks", "metal", "RemediationAllowed", "True")
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireNoRequests(ctx, t, s)
	w, q := s.Worker("hung"), requester{s.Management}
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
	gone, err := s.Management.Deletions("fencedremediations", m.GetName())
	require.NoError(t, err)
	require.NotEmpty(t, gone)
	for _, each := range gone {
		assert.Equal(t, clusterAPIManager, each.User)
	}
	awaitCondition(ctx, t, s, "machines", m.GetName(), "HealthCheckSucceeded", "True")
	assert.Equal(t, m.GetUID(), machineOf(ctx, t, s, w.Name).GetUID())
	requireNotAsked(ctx, t, s, "well", "fine")
}

// A host that does not come on again is handed over to the owner of its Machine: the manager's MachineSet,
// which asked nobody before, replaces the Machine on a spare host. The request goes with it.
func TestClusterAPIManagerReplacesWhatStaysOff(t *testing.T) {
	t.Parallel()
	s := managed(t, scene.Options{Mode: "respond", Set: []string{"power.onDeadline=12s"}, Workers: []scene.Spec{
		{Name: "broken", Protocol: scene.Redfish}, {Name: "well", Protocol: scene.IPMI}, {Name: "fine", Protocol: scene.IPMI},
		{Name: "spare", Protocol: scene.IPMI, Stranger: true},
	}})
	ctx := within(t)
	require.NoError(t, s.Management.Apply(ctx, soon(t, "cluster-api")))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w, q := s.Worker("broken"), requester{s.Management}
	m := machineOf(ctx, t, s, w.Name)
	ignoreOn(w, true)
	w.Kubelet.Hang()

	r := awaitRun(ctx, t, s, w.Name, func(r wire.RunRecord) bool { return !r.Ended.IsZero() })
	assert.Equal(t, []string{wire.ResultReprovisioned, "PowerOnFailed"}, []string{r.Result, r.Reason})
	awaitMachine(ctx, t, s, "spare")
	q.awaitGone(ctx, t, m.GetName())
	gone, err := s.Management.Deletions("machines", m.GetName())
	require.NoError(t, err)
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
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	for _, name := range []string{"hung", "second"} {
		s.Worker(name).Kubelet.Hang()
		_, err = s.Cluster.WaitNode(ctx, name, unknown)
		require.NoError(t, err)
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
	requester{s.Management}.awaitGone(ctx, t, machineOf(ctx, t, s, w.Name).GetName())
	requireNoDeletion(t, s, s.Worker("second"))
}
