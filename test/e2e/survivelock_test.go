package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// lockCourses are those about medik8s' Lease on the Node of a run. One dies before the Lease is given
// back, the other after it: the run has ended then, and no other point is left.
func lockCourses() []course {
	scene := scene.Options{
		CRDs:    []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8s},
		Workers: []scene.Spec{{Name: "dies", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI}},
	}
	taken := []string{"before-write-PowerOff-LockNode", "after-write-PowerOff-LockNode"}
	return []course{
		{
			name: "medik8s, the Lease is left", only: []string{"*-LockNode", "before-*-UnlockNode"}, play: (*trial).locksNode, scene: scene,
			passed: append([]string{"before-write-Done-UnlockNode"}, taken...),
		},
		{
			name: "medik8s, the Lease is given back", only: []string{"*-LockNode", "after-*-UnlockNode"}, play: (*trial).locksNode, scene: scene,
			passed: append([]string{"after-write-Done-UnlockNode"}, taken...),
		},
	}
}

// locksNode is a run in a cluster with medik8s' Leases. What a dead fenced has left of one is not
// renewed, so that it ends by itself.
func (t *trial) locksNode() string {
	t.Helper()
	require.NoError(t, t.s.Cluster.InstallMedik8s(t.ctx))
	end := t.fences()
	awaitUnlocked(t.ctx, t.T, t.s, "dies")
	return end
}

// awaitUnlocked waits until the Lease on a Node is gone, or was not renewed for so long that it is
// being left to end: a run that is open renews it every minute.
func awaitUnlocked(ctx context.Context, t *testing.T, s *scene.Scene, node string) {
	t.Helper()
	require.Eventually(t, func() bool {
		l, err := s.Cluster.Client().CoordinationV1().Leases("medik8s-leases").Get(ctx, "node-"+node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true
		}
		return err == nil && *l.Spec.LeaseDurationSeconds <= 300 && time.Since(l.Spec.RenewTime.Time) > 100*time.Second
	}, patience, time.Second)
}
