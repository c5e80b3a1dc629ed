package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// pool is a check that deletes the unhealthy Machines of a pool.
func pool(name string, maxUnhealthy any) rig.Check {
	return rig.Check{Name: name, Match: scene.Pool(name), Conditions: rig.NotReadyFor("2s"), MaxUnhealthy: maxUnhealthy}
}

// Pools without the bare-metal annotation: under the documented check, which is handed over, a
// Machine that a controller replaces is deleted, no other is, and beyond maxUnhealthy neither is
// anything deleted nor a host powered off. A stand-in for OpenShift's controller of checks lives.
func TestCloudPoolDeletesMachines(t *testing.T) {
	t.Parallel()
	metal := scene.Metal("2s")
	metal.Name, metal.Match, metal.MaxUnhealthy = "storm-metal", scene.Pool("storm-metal"), "40%"
	s := set(t, scene.Options{
		Checks: []rig.Check{pool("storm-cloud", int64(1)), metal},
		Workers: []scene.Spec{
			{Name: "owned", Pool: "cloud"}, {Name: "orphan", Pool: "cloud", Orphan: true},
			{Name: "master", Pool: "cloud", Role: "master"}, {Name: "well", Pool: "cloud"},
			{Name: "well-2", Pool: "cloud"}, {Name: "well-3", Pool: "cloud"}, {Name: "well-4", Pool: "cloud"}, {Name: "well-5", Pool: "cloud"},
			{Name: "cloud-1", Pool: "storm-cloud"}, {Name: "cloud-2", Pool: "storm-cloud"}, {Name: "cloud-3", Pool: "storm-cloud"},
			{Name: "metal-1", Pool: "storm-metal", Protocol: scene.IPMI}, {Name: "metal-2", Pool: "storm-metal", Protocol: scene.Redfish},
			{Name: "metal-3", Pool: "storm-metal", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "openshift-cloud")))
	machine, err := s.Cluster.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, "owned", metav1.GetOptions{})
	require.NoError(t, err)
	for _, name := range []string{"owned", "orphan", "master", "cloud-1", "cloud-2", "metal-1", "metal-2"} {
		s.Worker(name).Kubelet.Hang()
	}
	// The controllers come last, and when the timeout of all is over, so that they never see a storm begin
	// with its first host.
	for _, name := range []string{"cloud-1", "cloud-2", "metal-1", "metal-2"} {
		_, err := s.Cluster.WaitNode(ctx, name, unknown)
		require.NoError(t, err)
	}
	time.Sleep(4 * time.Second)
	require.NoError(t, s.RunHealthChecks(ctx))
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		d, err := s.Cluster.Deletions("machines", "owned")
		return err == nil && len(d) > 0
	}, patience, 100*time.Millisecond, "the Machine that a controller owns is deleted")
	for name, code := range map[string]string{
		"orphan": "NoController", "master": "ControlPlane",
		"cloud-1": "ShortCircuit", "cloud-2": "ShortCircuit", "metal-1": "ShortCircuit", "metal-2": "ShortCircuit",
	} {
		awaitRefusal(ctx, t, s, name, code)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, []string{"Normal RemediationStarted", "Normal MachineDeleted"}, ofRuns(describedNode(ctx, t, s.Cluster, "owned")))
		assert.Contains(c, describedNode(ctx, t, s.Cluster, "orphan"), "Normal SkippedNoController")
		assert.Contains(c, described(ctx, t, s.Cluster, machineObject(ctx, t, s, "orphan")), "Normal SkippedNoController")
		assert.Contains(c, describedNode(ctx, t, s.Cluster, "metal-1"), "Warning RemediationSkipped")
		storm, err := s.Cluster.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace).Get(ctx, "storm-metal", metav1.GetOptions{})
		if assert.NoError(c, err) {
			assert.Contains(c, described(ctx, t, s.Cluster, storm), "Warning RemediationRestricted", "also at the start")
		}
	}, patience, 200*time.Millisecond)
	time.Sleep(3 * time.Second) // what should not happen has time to

	d, err := s.Cluster.Deletions("machines", "owned")
	require.NoError(t, err)
	require.Len(t, d, 1)
	assert.Equal(t, rig.FencedUser, d[0].User)
	assert.Equal(t, string(machine.GetUID()), d[0].UID, "the UID precondition")
	for _, w := range s.Workers {
		requireNoDeletion(t, s, w)
		if w.Name == "owned" {
			continue
		}
		d, err := s.Cluster.Deletions("machines", w.Name)
		require.NoError(t, err)
		assert.Empty(t, d, "deletions of Machine %s", w.Name)
		if w.BMC != nil {
			assert.True(t, w.BMC.Power(), "%s is on", w.Name)
			assert.Zero(t, w.FirstAsked(), "the BMC of %s was not even asked", w.Name)
		}
	}
}
