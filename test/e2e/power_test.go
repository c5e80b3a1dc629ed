package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/redfishsim"
	"github.com/fenced/fenced/test/scene"
)

// needAgents skips without the Debian peers that stand behind power levels.
func needAgents(t *testing.T, agents ...string) {
	t.Helper()
	needDebian(t, "ipmi_sim", "ipmitool")
	for _, a := range agents {
		if _, err := os.Stat(filepath.Join("/usr/sbin", a)); err != nil {
			needDebian(t, a) // says what to do
		}
	}
}

// enroll vouches for workers' devices, once the daemon has seen the cluster.
func enroll(ctx context.Context, t *testing.T, s *scene.Scene, names ...string) {
	t.Helper()
	requireGaps(ctx, t, s)
	for _, name := range names {
		fencectl(ctx, t, s, 0, "bmc", "enroll", name, "--reason", "looked at the cabling", "--yes")
	}
}

// supply is what a host truly was, again and again: switched on and fed, or not.
type supply struct {
	mu   sync.Mutex
	seen []sample
}

type sample struct {
	at time.Time
	on bool
}

// watchSupply looks at a host itself until the test ends, and asks nobody.
func watchSupply(t *testing.T, w *scene.Worker) *supply {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &supply{}
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			p.mu.Lock()
			p.seen = append(p.seen, sample{time.Now(), w.On()})
			p.mu.Unlock()
			pause(ctx, 20*time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return p
}

// requireOffAt checks that the host was off from 3 s before at, the spacing of the
// two readings of a proof, to a moment after it.
func (p *supply) requireOffAt(t *testing.T, at time.Time) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	looks := 0
	for _, s := range p.seen {
		if s.at.After(at.Add(-3*time.Second)) && s.at.Before(at.Add(time.Second)) {
			looks++
			require.False(t, s.on, "on at %s, the Node was deleted %s", s.at, at)
		}
	}
	require.Greater(t, looks, 10, "looks at the host around the deletion")
}

// requireOnAlways checks that the host was never off.
func (p *supply) requireOnAlways(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotEmpty(t, p.seen)
	for _, s := range p.seen {
		require.True(t, s.on, "off at %s", s.at)
	}
}

func notesOf(r wire.RunRecord) string {
	var notes []string
	for _, s := range r.Steps {
		notes = append(notes, s.Note)
	}
	return strings.Join(notes, "\n")
}

// requireFenced waits until a run brought a host back, and checks it from the
// outside: one deletion, while the host was truly off.
func requireFenced(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker, p *supply) wire.RunRecord {
	t.Helper()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Empty(t, r.Reason, w.Name)
	requireBack(ctx, t, s, w)
	p.requireOffAt(t, requireOneDeletion(t, s, w).Received)
	for i := range w.Outlets {
		assert.True(t, w.Outlet(i).Power(), "outlet %d of %s is on again", i+1, w.Name)
	}
	return r
}

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
	d := must.Do(s.StartDaemon(ctx))(t)
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

	code := must.Do(d.Terminate(ctx))(t)
	assert.Zero(t, code)
}

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
	s := onStandIn(t, levelOptions(
		scene.Spec{Name: "dead-bmc", Protocol: scene.Redfish, Outlets: []scene.Outlet{byAgent, byAgent}, AlwaysOn: true},
		scene.Spec{Name: "other-password", Protocol: scene.Redfish, Outlets: []scene.Outlet{byLibrary}, AlwaysOn: true},
		scene.Spec{Name: "ignores-off", Protocol: scene.IPMI, Outlets: []scene.Outlet{byAgent}},
	))
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
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
	s := onStandIn(t, levelOptions(
		scene.Spec{Name: "feeds-another", Protocol: scene.IPMI, Outlets: []scene.Outlet{another}},
		scene.Spec{Name: "one-stays-on", Protocol: scene.Redfish, Outlets: []scene.Outlet{byLibrary, byLibrary}},
		scene.Spec{Name: "not-enrolled", Protocol: scene.Redfish, Outlets: []scene.Outlet{byLibrary}},
	))
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
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

// Each driver that believes a program or a library of others takes a host through
// a whole run, once somebody has vouched for its device; without that it does
// nothing.
func TestForeignDriversGoTheWholeWay(t *testing.T) {
	t.Parallel()
	needAgents(t, "fence_ipmilan", "fence_redfish")
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{
		{Name: "ipmitool", Protocol: scene.IPMISim, Driver: scene.BMCLib},
		{Name: "gofish", Protocol: scene.Redfish, Driver: scene.BMCLib},
		{Name: "fence-ipmilan", Protocol: scene.IPMI, Driver: scene.Agent},
		{Name: "fence-redfish", Protocol: scene.Redfish, Driver: scene.Agent},
		{Name: "not-enrolled", Protocol: scene.IPMI, Driver: scene.BMCLib},
		{Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
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

// A BMC that reports no UUID of its host takes it through a whole run once somebody
// has enrolled it, over either protocol; without that it does nothing. // I8
func TestBMCsWithoutUUIDGoTheWholeWay(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Set: []string{"sweep.interval=10s"}, Workers: []scene.Spec{
		{Name: "redfish", Protocol: scene.Redfish}, {Name: "ipmi", Protocol: scene.IPMI},
		{Name: "not-enrolled", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI},
	}})
	for _, name := range []string{"redfish", "not-enrolled"} {
		s.Worker(name).Service.Quirks(func(q *redfishsim.Quirks) { q.NoUUID = true })
	}
	require.NoError(t, s.Worker("ipmi").BMC.(*ipmisim.GoBMC).SetUUID("00000000-0000-0000-0000-000000000000"))
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
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

// A BMC that says Off while the kubelet lives is not believed, its host is not
// switched off again, and after the second one no host with such a BMC is, by
// anybody, whatever happens to the daemon, until somebody releases it.
func TestFalseOffFreezes(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{
		{Name: "liar-1", Protocol: scene.IPMI}, {Name: "liar-2", Protocol: scene.IPMI},
		{Name: "same-model", Protocol: scene.IPMI}, {Name: "other-model", Protocol: scene.Redfish},
	}})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	requireGoodStatus(ctx, t, s)
	for _, w := range s.Workers {
		fencectl(ctx, t, s, 0, "bmc", "test", w.Name) // what the health check would do in a minute
	}
	liars := s.Workers[:2]
	lie(ctx, t, s, liars)

	other := s.Worker("other-model")
	other.Kubelet.Hang()
	awaitRun(ctx, t, s, other.Name, result(wire.ResultDone))
	third := s.Worker("same-model")
	third.Kubelet.Hang()
	x := awaitRefusal(ctx, t, s, third.Name, "ClassFrozen")
	assert.Nil(t, x.Run, "no run was begun")
	stopLying(ctx, t, s, liars)
	for _, w := range liars {
		requireFrozen(ctx, t, s, w.Name, "Frozen")
	}
	requireFrozen(ctx, t, s, third.Name, "ClassFrozen")

	d.Kill()
	must.Do(s.StartDaemon(ctx))(t)
	awaitRefusal(ctx, t, s, third.Name, "ClassFrozen")
	for _, w := range liars {
		requireFrozen(ctx, t, s, w.Name, "Frozen")
	}
	requireFrozen(ctx, t, s, third.Name, "ClassFrozen")
	awaitListed(ctx, t, s, third.Name, "ClassFrozen")
	assert.Zero(t, goBMC(t, third).Counts().Off, "no Off was ever sent to %s", third.Name)

	fencectl(ctx, t, s, 7, "bmc", "release", third.Name, "--reason", "it never lied") // nothing stands on itself
	fencectl(ctx, t, s, 0, "bmc", "release", liars[0].Name, "--reason", "new firmware")
	awaitRun(ctx, t, s, third.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, third)
	requireOneDeletion(t, s, third)
	requireFrozen(ctx, t, s, liars[1].Name, "Frozen")
	fencectl(ctx, t, s, 0, "fence", liars[0].Name, "--reason", "test", "--dry-run")
	for _, w := range liars {
		untouched(ctx, t, s, w)
	}
}

// lie makes BMCs say Off of hosts that live on, and waits until fenced has
// noticed.
func lie(ctx context.Context, t *testing.T, s *scene.Scene, liars []*scene.Worker) {
	t.Helper()
	for _, w := range liars {
		require.NoError(t, w.BMC.IgnoreOff(true))
		require.NoError(t, w.BMC.LieOff(true))
		w.Kubelet.Hang()
	}
	for _, w := range liars {
		renewOnceOff(ctx, t, s, w)
	}
	for _, w := range liars {
		r := awaitRun(ctx, t, s, w.Name, result(wire.ResultHeld))
		require.Equal(t, "FalseOff", r.Reason)
		requireNoDeletion(t, s, w)
	}
}

// stopLying ends the lies and the runs that they stopped; the hosts stay frozen.
func stopLying(ctx context.Context, t *testing.T, s *scene.Scene, liars []*scene.Worker) {
	t.Helper()
	for _, w := range liars {
		require.NoError(t, w.BMC.LieOff(false))
		require.NoError(t, w.BMC.IgnoreOff(false))
		fencectl(ctx, t, s, 0, "unfence", w.Name, "--reason", "seen alive")
	}
	for _, w := range liars {
		awaitRun(ctx, t, s, w.Name, result(wire.ResultAborted))
	}
}

// awaitListed waits until bmc list shows a code on a node's line, and checks its
// exit status.
func awaitListed(ctx context.Context, t *testing.T, s *scene.Scene, node, code string) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := s.Fencectl(ctx, "bmc", "list", "-o", "wide")
		return err == nil && r.Exit == 2 && strings.Contains(lineOf(r.Stdout, node), code)
	}, patience, 200*time.Millisecond, "bmc list shows %s of %s", code, node)
}

// requireFrozen checks that not even a person can fence a host.
func requireFrozen(ctx context.Context, t *testing.T, s *scene.Scene, node, code string) {
	t.Helper()
	r := fencectl(ctx, t, s, 3, "fence", node, "--reason", "test", "--yes")
	assert.Contains(t, r.Stderr, "("+code+")", node)
}

func goBMC(t *testing.T, w *scene.Worker) *ipmisim.GoBMC {
	t.Helper()
	b, ok := w.BMC.(*ipmisim.GoBMC)
	require.True(t, ok, "the BMC of %s is go-ipmi's", w.Name)
	return b
}
