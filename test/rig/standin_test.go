package rig_test

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/test/apiserver"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// On a stand-in for the control plane a silent Node becomes Unknown, its deletion is in the audit log, and its Lease goes with it.
func TestStandIn(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	c := must.Do(rig.Start(ctx, rig.Options{StandIn: func(audit io.Writer) (rig.API, error) { return apiserver.Start(apiserver.Options{Audit: audit}) }}))(t)
	t.Cleanup(c.Stop)
	require.NoError(t, c.InstallCRDs(ctx), "again")
	must.Do(c.CreateHost(ctx, rig.Host{Name: "h", Address: "ipmi://127.0.0.1:1", User: "u", Password: "p"}))(t)
	on := func(context.Context) (bool, error) { return true, nil }
	hung := rigtest.RunKubelet(t, c, rig.KubeletOptions{NodeName: "hung", Power: on})
	rigtest.RunKubelet(t, c, rig.KubeletOptions{NodeName: "well", Power: on})
	for _, name := range []string{"hung", "well"} {
		must.Do(c.WaitNode(ctx, name, func(n *corev1.Node) bool { return rig.ReadyStatus(n) == corev1.ConditionTrue }))(t)
	}
	hung.Hang()
	n := must.Do(c.WaitNode(ctx, "hung", func(n *corev1.Node) bool { return rig.ReadyStatus(n) == corev1.ConditionUnknown }))(t)
	nodes := c.Client().CoreV1().Nodes()
	require.NoError(t, nodes.Delete(ctx, "hung", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID}}))
	deleted := must.Do(c.NodeDeletions("hung"))(t)
	require.Len(t, deleted, 1)
	assert.Equal(t, string(n.UID), deleted[0].UID)
	require.Eventually(t, func() bool {
		_, err := c.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "hung", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, time.Minute, 50*time.Millisecond, "the Lease of a Node that is gone")
	must.Do(c.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "well", metav1.GetOptions{}))(t)
	assert.Empty(t, must.Do(c.NodeDeletions("well"))(t))
	path := must.Do(c.Kubeconfig(rig.FencedUser))(t)
	assert.FileExists(t, path)
	assert.NoError(t, c.Died())
}

// TestSamplesAreValid: the samples of fencectl simulate are cut down, but an API server with the schemas of their kinds takes them.
func TestSamplesAreValid(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	c := must.Do(rig.Start(ctx, rig.Options{
		CRDs:    []rig.CRDs{rig.OpenShift, rig.Medik8s, rig.CAPIv1beta2},
		StandIn: func(audit io.Writer) (rig.API, error) { return apiserver.Start(apiserver.Options{Audit: audit}) },
	}))(t)
	t.Cleanup(c.Stop)
	require.NoError(t, c.CreateNamespace(ctx, "metal"))
	for _, sample := range []string{"openshift.yaml", "cluster-api.yaml", "medik8s.yaml"} { // fenced's own policies are no objects of a cluster
		assert.NoError(t, c.Apply(ctx, must.Do(os.ReadFile("../../configs/samples/"+sample))(t)), sample)
	}
}
