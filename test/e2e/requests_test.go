package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

var (
	requestResource  = schema.GroupVersionResource{Group: "fenced.io", Version: "v1alpha1", Resource: "fencedremediations"}
	templateResource = schema.GroupVersionResource{Group: "fenced.io", Version: "v1alpha1", Resource: "fencedremediationtemplates"}
)

// documented is a manifest of docs/systems.md, by the name in the comment before it, for a scene.
func documented(t *testing.T, name string) []byte {
	t.Helper()
	root, err := rig.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "systems.md"))
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)( *)<!-- test: " + name + " -->\n *```yaml\n(.*?)```").FindStringSubmatch(string(page))
	require.NotNil(t, block, "docs/systems.md has no manifest %q", name)
	text := regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[2], "")
	for from, to := range map[string]string{"CLUSTER": scene.ClusterName, "NAMESPACE": rig.Namespace, "pool: " + scene.MetalPool: "scene/pool: " + scene.MetalPool} {
		text = strings.ReplaceAll(text, from, to)
	}
	return []byte(text)
}

// requester is a stand-in for the controllers that make FencedRemediation objects. It makes
// and deletes them as their contracts say.
type requester struct {
	on *rig.ControlPlane
}

// newRequester installs the kinds and the documented template, with what the controllers need.
func newRequester(ctx context.Context, t *testing.T, on *rig.ControlPlane) requester {
	t.Helper()
	require.NoError(t, on.InstallCRDs(ctx, rig.Fenced))
	require.NoError(t, on.Apply(ctx, documented(t, "template")))
	return requester{on}
}

// make clones the template into a request with this metadata.
func (q requester) make(ctx context.Context, t *testing.T, name string, annotations, labels map[string]string, owner metav1.OwnerReference) *unstructured.Unstructured {
	t.Helper()
	template, err := q.on.Dynamic().Resource(templateResource).Namespace(rig.Namespace).Get(ctx, "power", metav1.GetOptions{})
	require.NoError(t, err)
	spec, _, err := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	require.NoError(t, err)
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "fenced.io/v1alpha1", "kind": "FencedRemediation", "spec": spec}}
	obj.SetName(name)
	obj.SetAnnotations(annotations)
	obj.SetLabels(labels)
	obj.SetOwnerReferences([]metav1.OwnerReference{owner})
	made, err := q.on.Dynamic().Resource(requestResource).Namespace(rig.Namespace).Create(ctx, obj, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}

// ofMachine makes the request of the Cluster API's manager: it has the Machine's name, and the
// Machine is its owner, but not its controller.
func (q requester) ofMachine(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	m, err := q.on.Dynamic().Resource(rig.CAPIResource("v1beta2", "machines")).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	q.make(ctx, t, name, map[string]string{
		"cluster.x-k8s.io/cloned-from-name": "power", "cluster.x-k8s.io/cloned-from-groupkind": "FencedRemediationTemplate.fenced.io",
	}, map[string]string{"cluster.x-k8s.io/cluster-name": scene.ClusterName},
		metav1.OwnerReference{APIVersion: m.GetAPIVersion(), Kind: "Machine", Name: name, UID: m.GetUID()})
}

// ofNode makes the request of the NodeHealthCheck "metal".
func (q requester) ofNode(ctx context.Context, t *testing.T, name, node string) {
	t.Helper()
	check, err := q.on.Dynamic().Resource(rig.NodeCheckResource).Get(ctx, "metal", metav1.GetOptions{})
	require.NoError(t, err)
	q.make(ctx, t, name, map[string]string{"remediation.medik8s.io/node-name": node, "remediation.medik8s.io/template-name": "power"},
		map[string]string{"app.kubernetes.io/part-of": "node-healthcheck-controller"},
		metav1.OwnerReference{APIVersion: check.GetAPIVersion(), Kind: check.GetKind(), Name: "metal", UID: check.GetUID()})
}

// get is the request now; nil if it is gone.
func (q requester) get(ctx context.Context, t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := q.on.Dynamic().Resource(requestResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return obj
}

func (q requester) remove(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	require.NoError(t, q.on.Dynamic().Resource(requestResource).Namespace(rig.Namespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

// awaitGone waits until the request is gone.
func (q requester) awaitGone(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool { return q.get(ctx, t, name) == nil }, patience, 50*time.Millisecond, "request %s is gone", name)
}

// awaitTold waits until the request is told phase, Processing and Succeeded.
func (q requester) awaitTold(ctx context.Context, t *testing.T, name, phase, processing, succeeded string) *unstructured.Unstructured {
	t.Helper()
	var last *unstructured.Unstructured
	ok := assert.Eventually(t, func() bool {
		last = q.get(ctx, t, name)
		got, _, _ := unstructured.NestedString(last.Object, "status", "phase")
		return got == phase && conditionIn(last, "Processing", "status", "conditions") == processing &&
			conditionIn(last, "Succeeded", "status", "conditions") == succeeded
	}, patience, 50*time.Millisecond)
	require.True(t, ok, "the request is told %s, Processing=%s, Succeeded=%s; last: %v", phase, processing, succeeded, last)
	return last
}

func held(obj *unstructured.Unstructured) bool {
	return slices.Contains(obj.GetFinalizers(), "fenced.io/power")
}

// The Cluster API judges, on a management API of its own, and fenced executes. The request is
// deleted in mid-sequence, as by a Node that flaps: it stays until the host is On again. One for a
// Node that is Ready asks for nothing.
func TestFencedRemediationOfTheClusterAPI(t *testing.T) {
	t.Parallel()
	s := clusterAPIScene(t, rig.CAPIv1beta2, scene.Options{
		Apart: true, Mode: "respond",
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy", Protocol: scene.Redfish, Metal3: true}},
	})
	ctx := within(t)
	q := newRequester(ctx, t, s.Management)
	require.NoError(t, s.Management.Apply(ctx, documented(t, "cluster-api")))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	_, err = s.Cluster.WaitNode(ctx, w.Name, unknown)
	require.NoError(t, err)
	q.ofMachine(ctx, t, "healthy")
	q.awaitTold(ctx, t, "healthy", "Succeeded", "False", "True")
	requireNotAsked(ctx, t, s, w.Name, "healthy")

	q.ofMachine(ctx, t, w.Name)
	awaitOff(t, w)
	assert.True(t, held(q.get(ctx, t, w.Name)), "held before the first power command")
	q.remove(ctx, t, w.Name)
	for obj := q.get(ctx, t, w.Name); obj != nil; obj = q.get(ctx, t, w.Name) {
		require.True(t, held(obj))
		time.Sleep(20 * time.Millisecond)
	}
	assert.True(t, w.BMC.Power(), "the host is on again before the request goes")
	r := awaitRun(ctx, t, s, w.Name, result(api.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	assert.Equal(t, "requested by FencedRemediation "+rig.Namespace+"/hung", r.Trigger)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	requireNotAsked(ctx, t, s, "healthy")
}

// A NodeHealthCheck with fenced as its first remediator: it holds medik8s' Lease on the Node for
// the request, reads its conditions, and deletes it when the Node is well. A host that fenced cannot
// reach is left to the next template: the request is told so, and says that it failed.
func TestFencedRemediationOfNodeHealthCheck(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Machines: scene.NoMachines, Mode: "respond", CRDs: []rig.CRDs{rig.Medik8s, rig.Fenced},
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.Redfish}, {Name: "dead", Protocol: scene.IPMI}, {Name: "well", Protocol: scene.IPMI}},
	})
	ctx := within(t)
	q := newRequester(ctx, t, s.Cluster)
	require.NoError(t, s.Cluster.Apply(ctx, documented(t, "medik8s")))
	require.NoError(t, s.Cluster.InstallMedik8s(ctx))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w, dead := s.Worker("hung"), s.Worker("dead")
	dead.KillBMC()
	for _, each := range []*scene.Worker{w, dead} {
		require.NoError(t, s.Cluster.PutLease(ctx, rig.Lease{Namespace: "medik8s-leases", Name: "node-" + each.Name, Holder: "NodeHealthCheck-metal", Duration: time.Hour}))
		each.Kubelet.Hang()
		_, err = s.Cluster.WaitNode(ctx, each.Name, unknown)
		require.NoError(t, err)
	}
	q.ofNode(ctx, t, "hung-x7k2p", w.Name)
	r := awaitRun(ctx, t, s, w.Name, result(api.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	obj := q.awaitTold(ctx, t, "hung-x7k2p", "Succeeded", "False", "True")
	assert.False(t, held(obj), "NodeHealthCheck may delete it")
	assert.Equal(t, "False", conditionIn(obj, "PermanentNodeDeletionExpected", "status", "conditions"))
	q.remove(ctx, t, "hung-x7k2p")
	q.awaitGone(ctx, t, "hung-x7k2p")
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)

	q.ofNode(ctx, t, "dead-aaaaa", dead.Name)
	q.awaitTold(ctx, t, "dead-aaaaa", "Pending", "False", "Unknown")
	timedOut := `{"metadata":{"annotations":{"remediation.medik8s.io/nhc-timed-out":"` + time.Now().UTC().Format(time.RFC3339) + `"}}}`
	_, err = s.Cluster.Dynamic().Resource(requestResource).Namespace(rig.Namespace).
		Patch(ctx, "dead-aaaaa", types.MergePatchType, []byte(timedOut), metav1.PatchOptions{})
	require.NoError(t, err)
	q.awaitTold(ctx, t, "dead-aaaaa", "Failed", "False", "False")
	requireNoDeletion(t, s, dead)
	requireNotAsked(ctx, t, s, "well")
}
