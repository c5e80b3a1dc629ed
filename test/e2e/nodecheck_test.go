package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// A NodeHealthCheck over Nodes that no Machine claims: nothing is done while the
// cluster is upgraded, then one host is fenced, and the next one only when the
// first is back, because minHealthy asks for that.
func TestNodeHealthCheck(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{rig.Medik8s, rig.ClusterVersions},
		NodeChecks: []rig.NodeCheck{{
			Name: "metal", Match: scene.Pool(scene.MetalPool), Conditions: rig.NotReadyFor("2s"), MinHealthy: "51%", Template: ownTemplate,
		}},
		Workers: []scene.Spec{
			{Name: "first", Protocol: scene.Redfish}, {Name: "second", Protocol: scene.IPMI}, {Name: "third", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.PutClusterVersion(ctx, true))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	k := covered(ctx, t, s, 0)["metal"]
	assert.Equal(t, []any{"NodeHealthCheck", "", "cluster", "Active", 3, 1},
		[]any{k.Kind, k.Namespace, k.Source, k.State, k.Targets, k.MaxUnhealthy})

	first, second := s.Worker("first"), s.Worker("second")
	ignoreOn(first, true) // it stays away until the second one was seen to wait
	first.Kubelet.Hang()
	requireUpgradeStops(ctx, t, s, first)
	require.NoError(t, s.Cluster.PutClusterVersion(ctx, false))
	awaitOff(t, first)
	second.Kubelet.Hang()
	x := awaitRefusal(ctx, t, s, second.Name, "ShortCircuit")
	assert.Equal(t, "Unhealthy", x.Verdict)
	requireNotAsked(ctx, t, s, second.Name)

	ignoreOn(first, false)
	r := awaitRun(ctx, t, s, first.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	assert.Empty(t, r.Machine)
	requireBack(ctx, t, s, first)
	requireOneDeletion(t, s, first)
	awaitOff(t, second) // there are enough healthy ones again
	assert.True(t, second.FirstAsked().After(r.Ended), "the second host waited for the first")
	requireNotAsked(ctx, t, s, "third")
}

// requireUpgradeStops checks that a sick Node is left alone, and that everybody
// is told why.
func requireUpgradeStops(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	x := awaitRefusal(ctx, t, s, w.Name, "ClusterUpgrading")
	assert.Equal(t, "Unhealthy", x.Verdict)
	name, value, _, source := gateOf(t, x, "ClusterUpgrading")
	assert.Equal(t, "upgrade", name)
	assert.Contains(t, value, "Progressing")
	assert.Equal(t, "check metal", source)
	a := planned(ctx, t, s, w.Name, "ClusterUpgrading", 0)
	assert.Equal(t, "NodeHealthCheck metal", a.Check)
	assert.Equal(t, 1, a.Order)
	assert.Empty(t, a.Machine)
	time.Sleep(2 * time.Second) // what should not happen has time to
	requireNotAsked(ctx, t, s, w.Name)
}
