package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

var (
	requestResource  = schema.GroupVersionResource{Group: "fenced.io", Version: "v1alpha1", Resource: "fencedremediations"}
	templateResource = schema.GroupVersionResource{Group: "fenced.io", Version: "v1alpha1", Resource: "fencedremediationtemplates"}
)

// requester is a stand-in for the manager of the Cluster API. It makes and deletes
// FencedRemediation objects as its contract says, with the rights that it has.
type requester struct {
	on *rig.ControlPlane
}

// newRequester installs the kinds, the documented template, and the rights of the stand-in.
func newRequester(ctx context.Context, t *testing.T, on *rig.ControlPlane) requester {
	t.Helper()
	installRequests(ctx, t, on, grantRequests)
	return requester{on}
}

// client is the stand-in's own one.
func (q requester) client(t *testing.T) dynamic.Interface {
	t.Helper()
	config, err := q.on.RESTConfig("stand-in-cluster-api", requesters)
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// make clones the template into a request with this metadata.
func (q requester) make(ctx context.Context, t *testing.T, name string, annotations, labels map[string]string, owner metav1.OwnerReference) {
	t.Helper()
	client := q.client(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the API server learns of new rights a moment later
		template, err := client.Resource(templateResource).Namespace(rig.Namespace).Get(ctx, "power", metav1.GetOptions{})
		if !assert.NoError(c, err) {
			return
		}
		spec, _, err := unstructured.NestedMap(template.Object, "spec", "template", "spec")
		assert.NoError(c, err)
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "fenced.io/v1alpha1", "kind": "FencedRemediation", "spec": spec}}
		obj.SetName(name)
		obj.SetAnnotations(annotations)
		obj.SetLabels(labels)
		obj.SetOwnerReferences([]metav1.OwnerReference{owner})
		_, err = client.Resource(requestResource).Namespace(rig.Namespace).Create(ctx, obj, metav1.CreateOptions{})
		assert.NoError(c, err)
	}, patience, 100*time.Millisecond)
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
	require.NoError(t, q.client(t).Resource(requestResource).Namespace(rig.Namespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

// awaitGone waits until the request is gone.
func (q requester) awaitGone(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool { return q.get(ctx, t, name) == nil }, patience, 50*time.Millisecond, "request %s is gone", name)
}

func held(obj *unstructured.Unstructured) bool {
	return slices.Contains(obj.GetFinalizers(), "fenced.io/power")
}
