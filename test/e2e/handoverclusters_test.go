package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// A second cluster of the Cluster API on the management API of a scene, in a namespace of its own.
const (
	secondCluster   = "second"
	secondNamespace = "team-b"
	clusterLabel    = "cluster.x-k8s.io/cluster-name"
)

// templatesWithoutManager binds the part of templates.yaml that a management API of a scene does not
// aggregate, because it has no controller manager.
const templatesWithoutManager = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: fenced-templates-known}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fenced-templates-known}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + rig.FencedUser + `}]
`

// copyToSecond makes an object of the scene's cluster one of the second cluster.
func copyToSecond(ctx context.Context, t *testing.T, on *rig.ControlPlane, kind schema.GroupVersionResource, name, as string) {
	t.Helper()
	obj, err := on.Dynamic().Resource(kind).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	status, had := obj.Object["status"]
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind(), "spec": obj.Object["spec"]}}
	made.SetNamespace(secondNamespace)
	made.SetName(as)
	made.SetAnnotations(obj.GetAnnotations())
	labels := obj.GetLabels()
	if labels[clusterLabel] != "" {
		labels[clusterLabel] = secondCluster
	}
	made.SetLabels(labels)
	if _, is, _ := unstructured.NestedString(made.Object, "spec", "clusterName"); is {
		require.NoError(t, unstructured.SetNestedField(made.Object, secondCluster, "spec", "clusterName"))
	}
	unstructured.RemoveNestedField(made.Object, "spec", "providerID") // its Node has none
	there := on.Dynamic().Resource(kind).Namespace(secondNamespace)
	made, err = there.Create(ctx, made, metav1.CreateOptions{})
	require.NoError(t, err)
	if had {
		made.Object["status"] = status
		_, err = there.UpdateStatus(ctx, made, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
}

// nameMachine writes into a Node of the second cluster which Machine is its, as the Cluster API does.
func nameMachine(ctx context.Context, t *testing.T, second *scene.Scene, node, machine string) {
	t.Helper()
	patch := `{"metadata": {"annotations": {"cluster.x-k8s.io/cluster-namespace": "` + secondNamespace + `", "cluster.x-k8s.io/machine": "` + machine + `"}}}`
	_, err := second.Cluster.Client().CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// refusedIn is why fenced does not act on a Node of a cluster.
func refusedIn(ctx context.Context, s *scene.Scene, cluster, node string) string {
	x, err := api.New(s.Socket()).Explain(ctx, cluster, node)
	if err != nil {
		return err.Error()
	}
	return x.Value.Refused
}

// Two clusters on one management API, each with Nodes of the same names and a check of the same name,
// and one daemon that has asked another remediator for both: the two requests are two, each with the
// mark of its own cluster. The limit over all clusters counts both: a third host has to wait. The end
// of one request frees its place, and changes nothing about the other one. // I11, I22
//
// In CI the tests of internal/engine show the limit (TestAskedRemediatorHasASlot).
func TestRequestsOfTwoClustersOnOneManagementAPI(t *testing.T) {
	dice.OnlyInSoak(t)
	t.Parallel()
	check := handedOver()
	check.Template = rig.RemediationTemplate("other")
	s := clusterAPIScene(t, rig.CAPIv1beta2, scene.Options{
		Apart: true, ClusterChecks: []rig.CAPICheck{check}, Set: []string{"guards.maxInFlightTotal=2"},
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "later", Protocol: scene.IPMI, Metal3: true}, {Name: "well", Protocol: scene.IPMI, Metal3: true}},
	})
	second := set(t, scene.Options{Machines: scene.NoMachines, Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI}, {Name: "well", Protocol: scene.IPMI}}})
	ctx, on := within(t), s.Management
	require.NoError(t, on.InstallCRDs(ctx, rig.Metal3Remediation))
	require.NoError(t, on.ApplyConfig(ctx, "kubernetes/templates.yaml"))
	require.NoError(t, on.Apply(ctx, []byte(templatesWithoutManager)))
	_, err := on.CreateTemplate(ctx, "other")
	require.NoError(t, err)
	require.NoError(t, on.CreateNamespace(ctx, secondNamespace))
	templates := rig.RemediationResource
	templates.Resource = "metal3remediationtemplates"
	copyToSecond(ctx, t, on, rig.CAPIResource("v1beta2", "clusters"), scene.ClusterName, secondCluster)
	for _, node := range []string{"hung", "well"} {
		copyToSecond(ctx, t, on, rig.CAPIResource("v1beta2", "machines"), node, node+"-b")
		nameMachine(ctx, t, second, node, node+"-b")
	}
	copyToSecond(ctx, t, on, rig.CAPIResource("v1beta2", "machinehealthchecks"), "metal", "metal")
	copyToSecond(ctx, t, on, templates, "other", "other")
	twoClusters(t, s, second)
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)

	mine, theirs := provider{on: on, kind: rig.RemediationResource, namespace: rig.Namespace}, provider{on: on, kind: rig.RemediationResource, namespace: secondNamespace}
	s.Worker("hung").Kubelet.Hang()
	second.Worker("hung").Kubelet.Hang()
	a, b := mine.await(ctx, t, "hung", "exists", exists), theirs.await(ctx, t, "hung-b", "exists", exists)
	assert.Equal(t, []string{scene.ClusterName, secondCluster}, []string{a.GetLabels()[clusterLabel], b.GetLabels()[clusterLabel]})
	ofA, ofB := strings.Split(a.GetAnnotations()[madeBy], "/"), strings.Split(b.GetAnnotations()[madeBy], "/")
	require.Len(t, ofA, 3)
	require.Len(t, ofB, 3)
	assert.Equal(t, ofA[0], ofB[0], "one installation")
	assert.Equal(t, []string{scene.ClusterName, secondCluster}, []string{ofA[1], ofB[1]})
	assert.NotEqual(t, ofA[2], ofB[2], "two records")

	s.Worker("later").Kubelet.Hang()
	require.Eventually(t, func() bool { return refusedIn(ctx, s, scene.ClusterName, "later") == "TotalInFlight" }, patience, 200*time.Millisecond)
	require.Nil(t, mine.get(ctx, t, "later"))
	reboot(ctx, t, second, second.Worker("hung"))
	theirs.awaitGone(ctx, t, "hung-b")
	mine.await(ctx, t, "later", "exists, now that a place is free", exists)
	is := mine.get(ctx, t, "hung")
	assert.Equal(t, []string{string(a.GetUID()), a.GetResourceVersion()}, []string{string(is.GetUID()), is.GetResourceVersion()}, "nobody has touched it")

	for _, name := range []string{"hung", "later"} {
		reboot(ctx, t, s, s.Worker(name))
		mine.awaitGone(ctx, t, name)
		requireNoDeletion(t, s, s.Worker(name))
	}
	requireNoDeletion(t, second, second.Worker("hung"))
	untouched(ctx, t, s, s.Worker("well"))
	untouched(ctx, t, second, second.Worker("well"))
}

// twoClusters makes fenced.yaml of a scene one of two clusters, whose Machines are in any namespace
// of its management API. There is no hosts.d: nothing is switched.
func twoClusters(t *testing.T, s, second *scene.Scene) {
	t.Helper()
	config, err := os.ReadFile(s.Config())
	require.NoError(t, err)
	management, err := s.Management.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	cluster, err := second.Cluster.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	text := strings.Replace(string(config), `namespace: "`+rig.Namespace+`", `, "", 1)
	require.NotEqual(t, text, string(config))
	text = strings.Replace(text, "hosts: hosts.d\n", "  - {name: "+secondCluster+", kubeconfig: "+cluster+", management: {kubeconfig: \""+management+"\", clusterName: "+secondCluster+
		"}, mode: evaluate}\nhosts: hosts.d\n", 1)
	require.NoError(t, os.WriteFile(s.Config(), []byte(text), 0o600))
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(s.Config()), "hosts.d", "hosts.yaml")))
}
