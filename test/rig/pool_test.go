package rig_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// TestPool: the next borrower finds nothing of the one before, and no control plane whose rights were
// changed.
func TestPool(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	t.Parallel()
	ctx := rigtest.Context(t, 5*time.Minute)
	pool := &rig.Pool{}
	t.Cleanup(pool.Stop)
	borrow := func() *rig.ControlPlane {
		planes, err := pool.StartAll(ctx, rig.Options{CRDs: []rig.CRDs{rig.Metal3}})
		require.NoError(t, err)
		t.Cleanup(planes[0].Stop)
		return planes[0]
	}
	deletions := func(c *rig.ControlPlane) []rig.Deletion {
		d, err := c.AllNodeDeletions()
		require.NoError(t, err)
		return d
	}

	first := borrow()
	dir := first.Dir()
	for _, name := range []string{"left", "deleted"} {
		_, err := first.CreateNode(ctx, rig.Node{Name: name})
		require.NoError(t, err)
	}
	require.NoError(t, first.CreateNamespace(ctx, "left"))
	require.NoError(t, first.Client().CoreV1().Nodes().Delete(ctx, "deleted", metav1.DeleteOptions{}))
	require.Len(t, deletions(first), 1)
	first.Stop()

	second := borrow()
	require.Equal(t, dir, second.Dir(), "it is lent again")
	first.Stop() // the former borrower can no longer stop it
	nodes, err := second.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, nodes.Items)
	require.NoError(t, second.CreateNamespace(ctx, "left"), "it is gone")
	assert.Empty(t, deletions(second))
	require.NoError(t, second.Client().RbacV1().ClusterRoles().Delete(ctx, "fenced", metav1.DeleteOptions{}))
	second.Stop()

	assert.NotEqual(t, dir, borrow().Dir())
}
