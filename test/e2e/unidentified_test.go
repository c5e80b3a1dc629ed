package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
	"github.com/fenced/fenced/test/scene"
)

// A BMC that reports no UUID of its host takes it through a whole run once somebody
// has enrolled it, over either protocol; without that it does nothing. // I8
func TestBMCsWithoutUUIDGoTheWholeWay(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Set: []string{"sweep.interval=10s"}, Workers: []scene.Spec{
		{Name: "redfish", Protocol: scene.Redfish}, {Name: "ipmi", Protocol: scene.IPMI},
		{Name: "not-enrolled", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI},
	}})
	for _, name := range []string{"redfish", "not-enrolled"} {
		s.Worker(name).Service.Quirks(func(q *redfishsim.Quirks) { q.NoUUID = true })
	}
	require.NoError(t, s.Worker("ipmi").BMC.(*ipmisim.GoBMC).SetUUID("00000000-0000-0000-0000-000000000000"))
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	enroll(ctx, t, s, "redfish", "ipmi")
	list := fencectl(ctx, t, s, 0, "bmc", "test", "redfish")
	assert.Contains(t, list.Stdout, "lower")
	assert.Contains(t, list.Stdout, "match")

	supplies := map[string]*supply{}
	for _, w := range s.Workers[:3] {
		supplies[w.Name] = watchSupply(t, w)
		w.Kubelet.Hang()
	}
	for _, w := range s.Workers[:2] {
		r := requireFenced(ctx, t, s, w, supplies[w.Name])
		assert.Equal(t, stages, stepsOf(r), w.Name)
	}
	x := awaitRefusal(ctx, t, s, "not-enrolled", "IdentityUnknown")
	assert.Nil(t, x.Run)
	supplies["not-enrolled"].requireOnAlways(t)
	untouched(ctx, t, s, s.Worker("not-enrolled"))
	untouched(ctx, t, s, s.Worker("healthy"))
}
