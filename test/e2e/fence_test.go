package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// stages are the steps of a run without an accident.
var stages = []string{"PowerOff", "DeleteNode", "PowerOn", "AwaitNode", "RestoreNode"}

func stepsOf(r wire.RunRecord) []string {
	var names []string
	for _, s := range r.Steps {
		names = append(names, s.Step)
	}
	return names
}

// Two hung hosts at once, each by one protocol and one source of its address,
// and a healthy one that nobody may touch. The policies of protect-nodes.yaml
// deny nothing that fenced does.
func TestHungHostsComeBack(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "by-ipmi", Protocol: scene.IPMI, Metal3: true},
		{Name: "by-redfish", Protocol: scene.Redfish},
		{Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	require.NoError(t, s.Cluster.ApplyConfig(ctx, "kubernetes/protect-nodes.yaml"))
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	hung := []*scene.Worker{s.Worker("by-ipmi"), s.Worker("by-redfish")}
	for _, w := range hung {
		w.Kubelet.Hang()
	}
	for _, w := range hung {
		r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
		assert.Equal(t, stages, stepsOf(r))
		assert.Contains(t, r.Trigger, "Ready")
		requireBack(ctx, t, s, w)
		requireOneDeletion(t, s, w)
	}
	untouched(ctx, t, s, s.Worker("healthy"))
	assert.Zero(t, s.Worker("healthy").FirstAsked(), "nobody asked the BMC of a healthy host")

	code, err := d.Terminate(ctx)
	require.NoError(t, err)
	assert.Zero(t, code)
}
