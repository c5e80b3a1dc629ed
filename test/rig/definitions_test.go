package rig_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// An object's own endpoint never changes its status and the status endpoint
// never its spec: what fenced writes back must go to the right one.
func TestStatusIsASubresource(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *rig.ControlPlane, version string) {
		ctx := rigtest.Context(t, 3*time.Minute)
		check, err := c.CreateCAPICheck(ctx, rig.CAPICheck{Name: rigtest.Name("status"), Cluster: "blue", MaxUnhealthy: "40%"})
		require.NoError(t, err)
		statusApart(t, capiClient(c, version, "machinehealthchecks"), check, map[string]any{"expectedMachines": int64(3)})
		machine, err := c.CreateCAPIMachine(ctx, rig.CAPIMachine{Name: rigtest.Name("status"), Cluster: "blue"})
		require.NoError(t, err)
		statusApart(t, capiClient(c, version, "machines"), machine, map[string]any{"phase": "Failed"})
		remediation, err := c.CreateRemediation(ctx, machine, "reboot")
		require.NoError(t, err)
		statusApart(t, c.Dynamic().Resource(rig.RemediationResource).Namespace(rig.Namespace), remediation,
			map[string]any{"phase": "Running"})
	})
	c, ctx := rigtest.Shared(t, rig.Medik8s, rig.ClusterVersions), rigtest.Context(t, 3*time.Minute)
	check, err := c.CreateNodeCheck(ctx, rig.NodeCheck{Name: rigtest.Name("status")})
	require.NoError(t, err)
	statusApart(t, c.Dynamic().Resource(rig.NodeCheckResource), check, map[string]any{"phase": "Enabled"})
}

func statusApart(t *testing.T, client dynamic.ResourceInterface, obj *unstructured.Unstructured, status map[string]any) {
	t.Helper()
	ctx, kind := t.Context(), obj.GetKind()
	before, generation := obj.Object["status"], obj.GetGeneration()
	obj.Object["status"] = status
	obj, err := client.Update(ctx, obj, metav1.UpdateOptions{})
	require.NoError(t, err, kind)
	assert.Equal(t, before, obj.Object["status"], kind)

	obj.Object["status"] = status
	obj.Object["spec"].(map[string]any)["clusterName"] = "other"
	obj, err = client.UpdateStatus(ctx, obj, metav1.UpdateOptions{})
	require.NoError(t, err, kind)
	assert.Equal(t, status, obj.Object["status"], kind)
	assert.NotEqual(t, "other", field(obj, "spec", "clusterName"), kind)
	assert.Equal(t, generation, obj.GetGeneration(), kind)
}

func TestDefinitionsComeAndGo(t *testing.T) {
	c, ctx := rigtest.Own(t, rig.Options{Bare: true, NoManager: true}), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.CreateNamespace(ctx, rig.Namespace))
	_, err := c.CreateCAPICluster(ctx, rig.CAPICluster{Name: "blue"})
	require.ErrorContains(t, err, "find the version of Cluster API")

	require.NoError(t, c.InstallCRDs(ctx, rig.CAPIv1beta1))
	_, err = c.CreateCAPICluster(ctx, rig.CAPICluster{Name: "blue"})
	require.NoError(t, err)
	_, err = capiClient(c, "v1beta1", "clusters").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.NoError(t, c.RemoveCRDs(ctx, rig.CAPIv1beta1))
	require.Eventually(t, func() bool {
		_, err := capiClient(c, "v1beta1", "clusters").Get(ctx, "blue", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, time.Minute, 50*time.Millisecond, "the objects go with their definition")
	require.NoError(t, c.RemoveCRDs(ctx, rig.CAPIv1beta1), "what goes, or has gone, is removed")
}

func TestSetThatDoesNotExist(t *testing.T) {
	_, err := rig.Start(t.Context(), rig.Options{CRDs: []rig.CRDs{"nothing"}})
	require.EqualError(t, err, `there is no set of CRDs "nothing"`)
}
