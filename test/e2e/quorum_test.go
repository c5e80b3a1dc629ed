package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

const controlPlanePolicy = `apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: control-plane}
spec:
  nodeSelector: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  strategy: PowerCycle
`

// Three control-plane hosts with an etcd member each, as kubeadm has them: one
// that is lost is fenced, by the taint, so that its Node stays; of two that are
// lost neither is touched, because etcd has no quorum to spare.
func TestControlPlaneKeepsItsQuorum(t *testing.T) {
	t.Parallel()
	member := func(name string, p scene.Protocol) scene.Spec {
		return scene.Spec{Name: name, Pool: "masters", Role: scene.ControlPlane, Etcd: true, Protocol: p}
	}
	s := set(t, scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Policies: map[string]string{"control-plane.yaml": controlPlanePolicy},
		Workers: []scene.Spec{
			member("master-1", scene.Redfish), member("master-2", scene.IPMI), member("master-3", scene.IPMI),
			{Name: "worker", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("master-1")
	taint, wit := watchTaint(t, s, w), watchBMC(t, w)
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireRebooted(ctx, t, s, w)
	require.True(t, wit.saidOn())
	wit.requireOffAt(t, taint.first(t))

	code, err := d.Terminate(ctx)
	require.NoError(t, err)
	require.Zero(t, code)
	lost := []string{"master-2", "master-3"}
	for _, name := range lost {
		s.Worker(name).Kubelet.Hang()
	}
	for _, name := range lost { // fenced comes back last, so that it never sees only one of them lost
		_, err := s.Cluster.WaitNode(ctx, name, unknown)
		require.NoError(t, err)
	}
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
	for _, name := range lost {
		x := awaitRefusal(ctx, t, s, name, "QuorumLost")
		assert.Equal(t, "Unhealthy", x.Verdict)
		planned(ctx, t, s, name, "QuorumLost", 0)
	}
	time.Sleep(3 * time.Second) // what should not happen has time to
	requireNotAsked(ctx, t, s, append(lost, "worker")...)
	requireRebooted(ctx, t, s, w)
}
