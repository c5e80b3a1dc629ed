package k8swatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// A kubeconfig may lead to another cluster with equal names later. // I2, I27
func TestLookAtAnotherClusterIsNoAnswer(t *testing.T) {
	c := rigtest.Shared(t)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{SystemUUID: "su", BootID: "b1"})
	ns, err := c.Client().CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	require.NoError(t, err)
	r.Target.ClusterUID = string(ns.UID)
	assert.Equal(t, string(ns.UID), look(t, k, r).Seen.ClusterUID)

	r.Target.ClusterUID = "of another cluster"
	l := k.Look(t.Context(), r, nil)
	require.ErrorContains(t, l.Err, "point it to the former again")
	assert.Equal(t, remediate.APIUnreachable, l.Seen.API)
}

// So may that of a separate management cluster: a Machine that another one lacks is not gone. // I2, I27
func TestLookAtAnotherManagementClusterIsNoAnswer(t *testing.T) {
	inBothVersions(t, func(t *testing.T, b *blue) {
		k := watched(t, b.config(t))
		ns, err := b.manage.Client().CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		require.NoError(t, err)
		l := look(t, k, b.run)
		require.NoError(t, l.Err)
		assert.Equal(t, string(ns.UID), l.Seen.ManagementUID)
		assert.NotEqual(t, l.Seen.ClusterUID, l.Seen.ManagementUID)

		b.run.Target.ManagementUID = "of another cluster"
		l = k.Look(t.Context(), b.run, nil)
		require.ErrorContains(t, l.Err, "point it to the former again")
		assert.Equal(t, remediate.APIUnreachable, l.Seen.API)

		cfg := b.config(t) // without its rights there
		cfg.Management.Kubeconfig, err = b.manage.Kubeconfig("somebody")
		require.NoError(t, err)
		k, err = New(cfg, zap.NewNop())
		require.NoError(t, err)
		l = k.Look(t.Context(), b.run, nil)
		require.ErrorContains(t, l.Err, "apply rbac.yaml")
		assert.Empty(t, l.Seen.ManagementUID)
	})
}
