package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/scene"
)

var (
	byAgent   = scene.Outlet{Driver: scene.Agent}
	byLibrary = scene.Outlet{Driver: scene.BMCLib}
)

// levelOptions are those of a play in which level 1 gives up soon, and level 2 has
// time for the 15 s without a heartbeat and for programs on a busy machine.
func levelOptions(workers ...scene.Spec) scene.Options {
	return scene.Options{
		Set:     []string{"power.offDeadline=35s", "power.onDeadline=20s", "power.readTimeout=5s"},
		Workers: append(workers, scene.Spec{Name: "healthy", Protocol: scene.IPMI}),
	}
}

// A host whose BMC is dead, or refuses the account, or accepts Off and ignores it,
// is fenced by the outlets that feed it, as somebody vouched for them.
func TestOutletsFenceWhereTheBMCCannot(t *testing.T) {
	t.Parallel()
	needAgents(t, "fence_ipmilan")
	s := set(t, levelOptions(
		scene.Spec{Name: "dead-bmc", Protocol: scene.Redfish, Outlets: []scene.Outlet{byAgent, byAgent}, AlwaysOn: true},
		scene.Spec{Name: "other-password", Protocol: scene.Redfish, Outlets: []scene.Outlet{byLibrary}, AlwaysOn: true},
		scene.Spec{Name: "ignores-off", Protocol: scene.IPMI, Outlets: []scene.Outlet{byAgent}},
	))
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	enroll(ctx, t, s, "dead-bmc", "other-password", "ignores-off")
	s.Worker("dead-bmc").KillBMC()
	s.Worker("other-password").Service.SetPassword("changed")
	require.NoError(t, s.Worker("ignores-off").BMC.IgnoreOff(true))
	supplies := map[string]*supply{}
	for _, w := range s.Workers[:3] {
		supplies[w.Name] = watchSupply(t, w)
		w.Kubelet.Hang()
	}

	for _, w := range s.Workers[:3] {
		r := requireFenced(ctx, t, s, w, supplies[w.Name])
		assert.Contains(t, notesOf(r), "proven off by power level 2", w.Name)
		t.Logf("%s: %s\n%s", w.Name, r.Ended.Sub(r.Started).Round(time.Second), notesOf(r))
	}
	// The outlet alone brings its BMC back, and not the host.
	b, ok := s.Worker("ignores-off").BMC.(*ipmisim.GoBMC)
	require.True(t, ok)
	assert.NotZero(t, b.Counts().On, "level 1 was told On, too")
	untouched(ctx, t, s, s.Worker("healthy"))
}

// Outlets prove nothing while the BMC still answers On, while one of them is on,
// or while nobody has vouched for them.
func TestOutletsThatProveNothing(t *testing.T) {
	t.Parallel()
	needAgents(t)
	another := scene.Outlet{Driver: scene.BMCLib, FeedsAnother: true}
	s := set(t, levelOptions(
		scene.Spec{Name: "feeds-another", Protocol: scene.IPMI, Outlets: []scene.Outlet{another}},
		scene.Spec{Name: "one-stays-on", Protocol: scene.Redfish, Outlets: []scene.Outlet{byLibrary, byLibrary}},
		scene.Spec{Name: "not-enrolled", Protocol: scene.Redfish, Outlets: []scene.Outlet{byLibrary}},
	))
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	enroll(ctx, t, s, "feeds-another", "one-stays-on")
	require.NoError(t, s.Worker("feeds-another").BMC.IgnoreOff(true))
	require.NoError(t, s.Worker("one-stays-on").BMC.IgnoreOff(true))
	require.NoError(t, s.Worker("one-stays-on").Outlet(1).IgnoreOff(true))
	s.Worker("not-enrolled").KillBMC()
	supplies := map[string]*supply{}
	for _, w := range s.Workers[:3] {
		supplies[w.Name] = watchSupply(t, w)
		w.Kubelet.Hang()
	}

	for name, want := range map[string][]string{"feeds-another": {wire.ResultHeld, "OutletContradicted"}, "one-stays-on": {wire.ResultWaiting, "PowerOffFailed"}} {
		r := awaitRun(ctx, t, s, name, result(want[0]))
		assert.Equal(t, want[1], r.Reason, name)
		assert.Contains(t, notesOf(r), "on to the next level", name)
	}
	x := awaitRefusal(ctx, t, s, "not-enrolled", "NotEnrolled")
	assert.Nil(t, x.Run, "no run was begun")
	byHand := fencectl(ctx, t, s, 3, "fence", "not-enrolled", "--reason", "test", "--yes")
	assert.Contains(t, byHand.Stderr, "NotEnrolled", "people are bound, too")
	for _, w := range s.Workers[:3] {
		for i := range w.Outlets {
			assert.Eventually(t, w.Outlet(i).Power, patience, 100*time.Millisecond, "outlet %d of %s is on again", i+1, w.Name)
		}
		supplies[w.Name].requireOnAlways(t)
		untouched(ctx, t, s, w)
	}
	untouched(ctx, t, s, s.Worker("healthy"))
}
