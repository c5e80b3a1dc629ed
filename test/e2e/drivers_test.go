package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/scene"
)

// Each driver that believes a program or a library of others takes a host through
// a whole run, once somebody has vouched for its device; without that it does
// nothing.
func TestForeignDriversGoTheWholeWay(t *testing.T) {
	t.Parallel()
	needAgents(t, "fence_ipmilan", "fence_redfish")
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "ipmitool", Protocol: scene.IPMISim, Driver: scene.BMCLib},
		{Name: "gofish", Protocol: scene.Redfish, Driver: scene.BMCLib},
		{Name: "fence-ipmilan", Protocol: scene.IPMI, Driver: scene.Agent},
		{Name: "fence-redfish", Protocol: scene.Redfish, Driver: scene.Agent},
		{Name: "not-enrolled", Protocol: scene.IPMI, Driver: scene.BMCLib},
		{Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	enroll(ctx, t, s, "ipmitool", "gofish", "fence-ipmilan", "fence-redfish")
	driven := s.Workers[:4]
	supplies := map[string]*supply{}
	for _, w := range s.Workers[:5] {
		supplies[w.Name] = watchSupply(t, w)
		w.Kubelet.Hang()
	}

	for _, w := range driven {
		r := requireFenced(ctx, t, s, w, supplies[w.Name])
		assert.Equal(t, stages, stepsOf(r), w.Name)
		assert.Contains(t, notesOf(r), "proven off by power level 1", "which proof it was")
		t.Logf("%s: %s: %s", w.Name, r.Ended.Sub(r.Started).Round(time.Second), notesOf(r))
	}
	x := awaitRefusal(ctx, t, s, "not-enrolled", "NotEnrolled")
	assert.Nil(t, x.Run)
	supplies["not-enrolled"].requireOnAlways(t)
	untouched(ctx, t, s, s.Worker("not-enrolled"))
	untouched(ctx, t, s, s.Worker("healthy"))
}
