package rig_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// TestPool: the next borrower finds nothing of the one before, and what that one took away. No control plane whose API server was stopped is lent
// again.
func TestPool(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	t.Parallel()
	ctx := rigtest.Context(t, 5*time.Minute)
	pool := &rig.Pool{}
	t.Cleanup(pool.Stop)
	borrow := func(o rig.Options) *rig.ControlPlane {
		planes, err := pool.StartAll(ctx, o)
		require.NoError(t, err)
		t.Cleanup(planes[0].Stop)
		return planes[0]
	}
	deletions := func(c *rig.ControlPlane) []rig.Deletion {
		d, err := c.AllNodeDeletions()
		require.NoError(t, err)
		return d
	}
	has := func(c *rig.ControlPlane, resource schema.GroupVersionResource) bool {
		_, err := c.Dynamic().Resource(resource).List(ctx, metav1.ListOptions{})
		require.True(t, err == nil || apierrors.IsNotFound(err), err)
		return err == nil
	}
	versions := schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusterversions"}

	first := borrow(rig.Options{CRDs: []rig.CRDs{rig.Metal3}})
	dir := first.Dir()
	for _, name := range []string{"left", "deleted"} {
		_, err := first.CreateNode(ctx, rig.Node{Name: name})
		require.NoError(t, err)
	}
	require.NoError(t, first.Apply(ctx, []byte("apiVersion: metal3.io/v1alpha1\nkind: BareMetalHost\nmetadata: {name: left}\n")))
	require.NoError(t, first.CreateNamespace(ctx, "left"))
	require.NoError(t, first.Client().CoreV1().Nodes().Delete(ctx, "deleted", metav1.DeleteOptions{}))
	require.Len(t, deletions(first), 1)
	require.NoError(t, first.Client().RbacV1().ClusterRoles().Delete(ctx, "fenced", metav1.DeleteOptions{}))
	require.NoError(t, first.Client().RbacV1().ClusterRoles().Delete(ctx, "view", metav1.DeleteOptions{}))
	require.NoError(t, first.InstallCRDs(ctx, rig.ClusterVersions))
	require.True(t, has(first, versions))
	first.Stop()

	second := borrow(rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3}})
	require.Equal(t, dir, second.Dir(), "it is lent again")
	first.Stop() // the former borrower can no longer stop it
	for _, r := range []schema.GroupVersionResource{{Version: "v1", Resource: "nodes"}, {Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}} {
		left, err := second.Dynamic().Resource(r).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		assert.Empty(t, left.Items, r.Resource)
	}
	_, err := second.Client().CoreV1().Namespaces().Get(ctx, "left", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), err)
	assert.Empty(t, deletions(second))
	for _, role := range []string{"fenced", "view"} {
		_, err = second.Client().RbacV1().ClusterRoles().Get(ctx, role, metav1.GetOptions{})
		assert.NoError(t, err)
	}
	assert.False(t, has(second, versions))
	second.StopAPIServer()
	require.NoError(t, second.StartAPIServer(ctx))
	second.Stop()

	assert.NotEqual(t, dir, borrow(rig.Options{Bare: true}).Dir())
}
