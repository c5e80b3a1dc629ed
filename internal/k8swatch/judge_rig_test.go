package k8swatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// Each API family's controller is asked on the API where it runs, with no more rights
// than fenced has there.
func TestControllerAliveFindsTheController(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	manage, work := rigtest.Apart(t, rig.CAPIv1beta2, rig.Metal3)
	forget(t, manage, "fenced")
	forget(t, work, "fenced-management")
	cfg := (&blue{manage: manage, work: work, cluster: "judged"}).config(t)
	capi, medik8s := rigtest.Name("wherever-capi-runs"), rigtest.Name("wherever-medik8s-runs")
	cfg.ControllerNamespaces = []string{capi, medik8s}
	k, err := New(cfg, zap.NewNop())
	require.NoError(t, err)
	for _, c := range []struct {
		id              policy.CheckID
		at              *rig.ControlPlane
		namespace, name string
	}{
		{policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI}, work, machineAPINamespace, checkLeader},
		{policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.ClusterAPIV1Beta1}, manage, capi, clusterAPILeader},
		{policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.ClusterAPIV1Beta2}, manage, capi, clusterAPILeader},
		{policy.CheckID{Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI}, work, medik8s, nodeCheckLeader},
	} {
		judged := func(want remediate.Answer, when string) {
			t.Helper()
			got, err := k.ControllerAlive(ctx, c.id)
			require.NoError(t, err)
			assert.Equal(t, want, got, c.id.APIVersion+" "+when)
		}
		require.NoError(t, c.at.CreateNamespace(ctx, c.namespace))
		until(t, time.Minute, "the API server knows the rights of fenced", func() bool {
			_, err := k.ControllerAlive(ctx, c.id)
			return err == nil
		})
		judged(remediate.No, "without a Lease")
		lease := rig.Lease{Namespace: c.namespace, Name: c.name, Holder: "judge-1", Duration: time.Minute}
		require.NoError(t, c.at.PutLease(ctx, lease))
		judged(remediate.Yes, "while its leader lives")
		lease.Renewed = time.Now().Add(-time.Hour)
		require.NoError(t, c.at.PutLease(ctx, lease))
		judged(remediate.No, "when its leader is dead")

		leases := c.at.Client().CoordinationV1().Leases(c.namespace)
		timeless, err := leases.Get(ctx, c.name, metav1.GetOptions{})
		require.NoError(t, err)
		timeless.Spec.RenewTime = nil
		_, err = leases.Update(ctx, timeless, metav1.UpdateOptions{})
		require.NoError(t, err)
		judged(remediate.Yes, "with a holder and no time, while it changes")
		require.NoError(t, leases.Delete(ctx, c.name, metav1.DeleteOptions{}))
	}
	got, err := k.ControllerAlive(ctx, policy.CheckID{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI})
	require.NoError(t, err)
	assert.Equal(t, remediate.Yes, got, "nobody here writes the status of a FencePolicy")
}
