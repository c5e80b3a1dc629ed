package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/wire"
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
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	for _, name := range []string{"hung", "cloud-1", "master-1"} {
		s.Worker(name).Kubelet.Hang()
	}

	w := s.Worker("hung")
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	for _, other := range s.Workers {
		d, err := s.Management.NodeDeletions(other.Name)
		require.NoError(t, err)
		assert.Empty(t, d, "deletions of Node %s on the management API", other.Name)
	}
	host, err := s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	require.NoError(t, err)
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

// clusterAPIScene is set for a scene of the Cluster API.
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
	obj, err := s.Management.Dynamic().Resource(rig.CAPIResource("v1beta2", plural)).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	return obj
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
	assert.LessOrEqual(t, patches["healthy"], 1, "writes to healthy")
	for _, w := range s.Workers {
		d, err := s.Management.Deletions("machines", w.Name)
		require.NoError(t, err)
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

// Where the kubeconfig of the workload API leads to another cluster, one that has
// Nodes, none of the Machines has one there. That is not taken for the loss of
// all of them.
func TestNodesOfAnotherCluster(t *testing.T) {
	t.Parallel()
	s := clusterAPIScene(t, scene.Options{
		ClusterChecks: []rig.CAPICheck{handedOver(), unhanded("cloud")},
		Workers: []scene.Spec{
			{Name: "elsewhere-1", Protocol: scene.IPMI, Metal3: true, NoNode: true},
			{Name: "elsewhere-2", Protocol: scene.Redfish, Metal3: true, NoNode: true},
			{Name: "elsewhere-3", Pool: "cloud", NoNode: true},
			{Name: "stranger", Protocol: scene.IPMI, Stranger: true}, {Name: "stranger-2", Stranger: true},
		},
	})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	for _, w := range s.Workers[:3] {
		x := awaitRefusal(ctx, t, s, w.Name, "NoNodesVisible")
		assert.Equal(t, "Unhealthy", x.Verdict)
		name, value, _, _ := gateOf(t, x, "NoNodesVisible")
		assert.Equal(t, "nodesVisible", name)
		assert.Contains(t, value, "2 Nodes")
		planned(ctx, t, s, w.Name, "NoNodesVisible", 0)
	}
	refused := fencectl(ctx, t, s, 3, "fence", "elsewhere-1", "--yes", "--reason", "test")
	assert.Contains(t, refused.Stderr, "NoNodesVisible", "for people, too")
	time.Sleep(3 * time.Second) // what should not happen has time to

	for _, name := range []string{"elsewhere-1", "elsewhere-2"} {
		assert.True(t, s.Worker(name).BMC.Power(), "%s is on", name)
		assert.Zero(t, s.Worker(name).FirstAsked(), "the BMC of %s was asked", name)
	}
	requireNotAsked(ctx, t, s, "stranger")
	untouched(ctx, t, s, s.Worker("stranger-2"))
	for _, resource := range []string{"nodes", "machines", "baremetalhosts"} {
		assert.Empty(t, writes(t, s.Management, resource))
	}
}
