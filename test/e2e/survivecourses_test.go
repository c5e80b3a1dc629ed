package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

var everyStep = []string{
	"before-save-run-PowerOff", "before-save-run-PowerOff-SendOff", "before-command-off-PowerOff-device0", "before-save-run-DeleteNode",
	"before-save-backup", "before-save-pin", "before-write-DeleteNode-IsolateNode", "before-save-run-PowerOn", "before-command-on-PowerOn-device0",
	"before-save-run-AwaitNode", "before-save-run-RestoreNode", "before-write-RestoreNode-RestoreNode", "before-save-run-Done",
	"after-save-run-PowerOff-SendOff", "after-command-off-PowerOff-device0", "after-save-backup", "after-write-DeleteNode-IsolateNode",
	"after-command-on-PowerOn-device0", "after-write-RestoreNode-RestoreNode", "after-save-run-Done",
}

// courses are the ways that a run can take.
func courses() []course {
	healthy := scene.Spec{Name: "healthy", Protocol: scene.IPMI}
	dies := scene.Spec{Name: "dies", Protocol: scene.Redfish, Metal3: true}
	member := func(name string, p scene.Protocol) scene.Spec {
		return scene.Spec{Name: name, Pool: "masters", Role: scene.ControlPlane, Etcd: true, Protocol: p}
	}
	return []course{
		{
			name: "IPMI", passed: everyStep, play: (*trial).fences,
			scene: scene.Options{Workers: []scene.Spec{{Name: "dies", Protocol: scene.IPMISim}, healthy}},
		},
		{
			name: "Redfish, Metal3", ci: true, play: (*trial).fences,
			passed: append([]string{"before-write-PowerOff-SetHold", "after-write-PowerOn-ReleaseHold"}, everyStep...),
			scene:  scene.Options{Workers: []scene.Spec{dies, healthy}},
		},
		{
			name: "three at once", each: true, play: (*trial).fencesThree,
			scene: scene.Options{Workers: []scene.Spec{
				// go-ipmi's BMC has no session left after so many deaths, for a minute each time
				{Name: "one", Protocol: scene.Redfish}, {Name: "two", Protocol: scene.IPMISim}, {Name: "three", Protocol: scene.Redfish, Metal3: true}, healthy,
			}},
		},
		{
			name: "paused on the way", only: []string{"*-cluster", "*-PowerOn*", "*-Aborted"}, play: (*trial).isPaused,
			passed: []string{"before-save-cluster", "before-save-run-PowerOn", "after-write-PowerOn-ReleaseHold", "after-command-on-PowerOn-device0", "before-save-run-Aborted"},
			scene:  scene.Options{Workers: []scene.Spec{dies, healthy}},
		},
		{
			name: "reprovisioned", only: []string{"*-Reprovision*"}, play: (*trial).reprovisions,
			passed: []string{"before-save-run-Reprovision", "after-write-Reprovision-DeleteTargetMachine", "after-save-run-Reprovisioned"},
			scene:  scene.Options{Workers: []scene.Spec{dies, healthy}, Set: []string{"power.onDeadline=12s"}},
		},
		{
			name: "control plane, tainted", passed: everyStep, play: (*trial).taints,
			scene: scene.Options{
				Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Policies: map[string]string{"control-plane.yaml": controlPlanePolicy},
				Workers: []scene.Spec{member("master-1", scene.Redfish), member("master-2", scene.IPMI), member("master-3", scene.IPMI)},
			},
		},
		{
			name: "held off, unfenced", only: []string{"*-Held*", "*-PowerOn*"}, play: (*trial).isHeld,
			passed: []string{"before-save-run-Held", "after-save-run-Held-ordered", "after-command-on-PowerOn-device0"},
			scene:  scene.Options{Workers: []scene.Spec{dies, healthy}},
		},
	}
}

// fences is a run without an accident but those of fenced.
func (t *trial) fences() string {
	t.Helper()
	w := t.s.Worker("dies")
	wit := watchBMC(t.T, w)
	watchRecord(t.T, t.s, w)
	t.fenced()
	hang(t.ctx, t.T, t.s, w)
	t.requireDone(w)
	require.True(t, wit.saidOn())
	wit.requireOffAt(t.T, requireOneDeletion(t.T, t.s, w).Received)
	untouched(t.ctx, t.T, t.s, t.s.Worker("healthy"))
	return wire.ResultDone
}

// fencesThree is several runs in flight, which die of each other's points.
func (t *trial) fencesThree() string {
	t.Helper()
	hung := t.s.Workers[:3]
	witnesses := map[string]*witness{}
	for _, w := range hung {
		witnesses[w.Name] = watchBMC(t.T, w)
		watchRecord(t.T, t.s, w)
	}
	t.fenced()
	for _, w := range hung {
		hang(t.ctx, t.T, t.s, w)
	}
	for _, w := range hung {
		t.requireDone(w)
		witnesses[w.Name].requireOffAt(t.T, requireOneDeletion(t.T, t.s, w).Received)
	}
	untouched(t.ctx, t.T, t.s, t.s.Worker("healthy"))
	return wire.ResultDone
}

func (t *trial) requireDone(w *scene.Worker) {
	t.Helper()
	r := awaitRun(t.ctx, t.T, t.s, w.Name, result(wire.ResultDone))
	assert.Empty(t, r.Reason)
	assert.Equal(t, "RestoreNode", r.Steps[len(r.Steps)-1].Step)
	requireBack(t.ctx, t.T, t.s, w)
	assert.True(t, w.BMC.Power())
}

// isPaused is a run that people stop after the host went off: it is powered on again,
// and nothing is deleted.
func (t *trial) isPaused() string {
	t.Helper()
	w := t.s.Worker("dies")
	watchRecord(t.T, t.s, w)
	t.fenced()
	w.Kubelet.Hang() // its Lease is fresh, so there is time before step 2
	awaitOff(t.T, w)
	insist(t.ctx, t.T, t.s, "pause", "--reason", "no more")
	r := awaitRun(t.ctx, t.T, t.s, w.Name, func(r wire.RunRecord) bool { return !r.Ended.IsZero() })
	assert.Equal(t, []string{wire.ResultAborted, "Paused"}, []string{r.Result, r.Reason})
	assert.True(t, w.BMC.Power())
	must.Do(t.s.Cluster.WaitNode(t.ctx, w.Name, scene.IsReady))(t)
	untouched(t.ctx, t.T, t.s, w)
	untouched(t.ctx, t.T, t.s, t.s.Worker("healthy"))
	return r.Result
}

// reprovisions is a run whose host does not come on again, so that its Machine is
// deleted.
func (t *trial) reprovisions() string {
	t.Helper()
	w := t.s.Worker("dies")
	ignoreOn(w, true)
	wit := watchBMC(t.T, w)
	finished := watchRecord(t.T, t.s, w)
	t.fenced()
	hang(t.ctx, t.T, t.s, w)
	r := awaitRun(t.ctx, t.T, t.s, w.Name, func(r wire.RunRecord) bool {
		if r.Steps[len(r.Steps)-1].Step == "Reprovision" {
			finished() // the host is its owner's soon
		}
		return !r.Ended.IsZero()
	})
	assert.Equal(t, []string{wire.ResultReprovisioned, "PowerOnFailed"}, []string{r.Result, r.Reason})
	wit.requireOffAt(t.T, requireOneDeletion(t.T, t.s, w).Received)
	d := must.Do(t.s.Management.Deletions("machines", w.Name))(t)
	require.Len(t, d, 1, "deletions of the Machine")
	assert.NotEmpty(t, d[0].UID, "the UID precondition")
	untouched(t.ctx, t.T, t.s, t.s.Worker("healthy"))
	return r.Result
}

// taints is a control-plane host, whose Node stays.
func (t *trial) taints() string {
	t.Helper()
	w := t.s.Worker("master-1")
	taint, wit := watchTaint(t.T, t.s, w), watchBMC(t.T, w)
	watchRecord(t.T, t.s, w)
	t.fenced()
	hang(t.ctx, t.T, t.s, w)
	r := awaitRun(t.ctx, t.T, t.s, w.Name, result(wire.ResultDone))
	assert.Empty(t, r.Reason)
	requireRebooted(t.ctx, t.T, t.s, w)
	require.True(t, wit.saidOn())
	wit.requireOffAt(t.T, taint.first(t.T))
	for _, other := range t.s.Workers[1:] {
		untouched(t.ctx, t.T, t.s, other)
	}
	return r.Result
}

// isHeld is a host that a person has switched off, and later wants back.
func (t *trial) isHeld() string {
	t.Helper()
	w := t.s.Worker("dies")
	wit := watchBMC(t.T, w)
	watchRecord(t.T, t.s, w)
	t.fenced()
	hang(t.ctx, t.T, t.s, w)
	insist(t.ctx, t.T, t.s, "fence", w.Name, "--off-only", "--yes", "--reason", "disk fails")
	r := awaitRun(t.ctx, t.T, t.s, w.Name, result(wire.ResultHeld))
	assert.Equal(t, "OperatorOff", r.Reason)
	time.Sleep(time.Second) // the deaths at its save are over
	assert.False(t, w.BMC.Power())
	insist(t.ctx, t.T, t.s, "unfence", w.Name, "--reason", "disk replaced")
	t.requireDone(w)
	wit.requireOffAt(t.T, requireOneDeletion(t.T, t.s, w).Received)
	untouched(t.ctx, t.T, t.s, t.s.Worker("healthy"))
	return wire.ResultDone
}

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

// refusedCourses are those in which nothing may be isolated, and what says so must
// outlive fenced.
func refusedCourses() []course {
	none := scene.Metal("2s")
	none.MaxUnhealthy = "0"
	liar, healthy := scene.Spec{Name: "dies", Protocol: scene.IPMI}, scene.Spec{Name: "healthy", Protocol: scene.IPMI}
	return []course{
		{
			name: "over the limit, on hold", only: []string{"*-status", "*-hold"}, play: (*trial).isOverTheLimit,
			passed: []string{"after-write-status", "before-save-hold", "after-save-hold"},
			scene:  scene.Options{Checks: []rig.Check{none}, Workers: []scene.Spec{liar, healthy}},
		},
		{
			name: "false off, frozen", only: []string{"*-freeze", "*-Held*", "*-Aborted"}, play: (*trial).isFrozen,
			passed: []string{"before-save-freeze", "after-save-freeze", "before-save-run-Held", "after-save-run-Held-ordered", "before-save-run-Aborted"},
			scene:  scene.Options{Workers: []scene.Spec{liar, healthy}},
		},
	}
}

// isOverTheLimit is a host that may not be fenced, and a check that says so. All deaths come before
// the host hangs, so each Event is written once.
func (t *trial) isOverTheLimit() string {
	t.Helper()
	w := t.s.Worker("dies")
	t.fenced()
	awaitStatus(t.ctx, t.T, t.s, 2, 2, 0, "True")
	insist(t.ctx, t.T, t.s, "hold", w.Name, "--reason", "disk fails") // by one that has judged before the host hangs
	w.Kubelet.Hang()
	awaitStatus(t.ctx, t.T, t.s, 2, 1, 0, "False")
	assert.True(t, refuses(awaitRefusal(t.ctx, t.T, t.s, w.Name, "ShortCircuit"), "Hold"))
	insist(t.ctx, t.T, t.s, "release", w.Name, "--reason", "disk replaced")
	assert.False(t, refuses(awaitRefusal(t.ctx, t.T, t.s, w.Name, "ShortCircuit"), "Hold"))
	rebootByHand(t.ctx, t.T, t.s, w)
	awaitStatus(t.ctx, t.T, t.s, 2, 2, 0, "True")
	awaitEvents(t.ctx, t.T, t.s, "Warning RemediationRestricted", "Normal RemediationAllowed")
	requireNotAsked(t.ctx, t.T, t.s, "dies", "healthy")
	return "none"
}

// isFrozen is a host that lives on while its BMC says Off: it is Held, and its BMC is
// not used until a person releases it.
func (t *trial) isFrozen() string {
	t.Helper()
	w := t.s.Worker("dies")
	t.fenced()
	lie(t.ctx, t.T, t.s, []*scene.Worker{w})
	require.NoError(t, w.BMC.LieOff(false))
	require.NoError(t, w.BMC.IgnoreOff(false))
	insist(t.ctx, t.T, t.s, "unfence", w.Name, "--reason", "seen alive")
	r := awaitRun(t.ctx, t.T, t.s, w.Name, result(wire.ResultAborted))
	require.Eventually(t, func() bool {
		r, err := t.s.Fencectl(t.ctx, "fence", w.Name, "--reason", "test", "--yes")
		return err == nil && r.Exit == 3 && strings.Contains(r.Stderr, "(Frozen)")
	}, patience, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		// The second time there may be nothing left to release.
		_, err := t.s.Fencectl(t.ctx, "bmc", "release", w.Name, "--reason", "new firmware")
		dry, dryErr := t.s.Fencectl(t.ctx, "fence", w.Name, "--reason", "test", "--dry-run")
		return err == nil && dryErr == nil && dry.Exit == 0
	}, patience, 100*time.Millisecond)
	// Off is proven anew by the fenced that lives after the death before the freeze was saved. // I1, I5
	assert.Equal(t, 2, goBMC(t.T, w).Counts().Off, "one Off of each fenced until the freeze is saved, and none after that")
	untouched(t.ctx, t.T, t.s, w)
	untouched(t.ctx, t.T, t.s, t.s.Worker("healthy"))
	return r.Result
}

// A fenced that dies by SIGKILL around each save and action of power, at each
// level, ends where one ends that lives: the next level is used with a proof of
// its own, and all that was given an Off is given an On.
func TestFencedSurvivesKillBetweenLevels(t *testing.T) {
	t.Parallel()
	dice.OnlyInSoak(t)
	needAgents(t)
	o := levelOptions(scene.Spec{Name: "dies", Protocol: scene.Redfish, Outlets: []scene.Outlet{byLibrary}})
	o.Set = append(o.Set, "power.offDeadline=32s", "power.onDeadline=2m", "power.podsGoneTimeout=0s", "power.sessionTimeout=0s") // each death voids what was proven
	s := set(t, o)
	ctx := within(t)
	w := s.Worker("dies")
	require.NoError(t, w.BMC.IgnoreOff(true))
	first := must.Do(s.StartDaemon(ctx))(t)
	enroll(ctx, t, s, w.Name)
	first.Kill()
	truth := watchSupply(t, w)
	markers := points(t, "*-PowerOff*", "*-PowerOn*") // TestFencedSurvives goes through the others
	deaths := keepAlive(ctx, t, s, markers)
	hang(ctx, t, s, w)

	acted := filepath.Join(markers, "after-command-off-PowerOff-device0")
	require.Eventually(t, func() bool { _, err := os.Stat(acted); return err == nil }, patience, 20*time.Millisecond, "killed right after the Off of level 1")
	require.Equal(t, []bool{false}, w.Service.System(0).Commands(), "one Off to level 1")
	require.True(t, w.Outlet(0).Power())
	atLevel1 := again(t, markers, "PowerOff")

	r := requireFenced(ctx, t, s, w, truth)
	assert.Contains(t, notesOf(r), "on to the next level")
	assert.Contains(t, notesOf(r), "proven off by power level 2")
	assert.Contains(t, w.Service.System(0).Commands(), true, "level 1 was told On, too")
	untouched(ctx, t, s, s.Worker("healthy"))
	passed := around(t, markers, "Power")
	t.Logf("%d deaths in %s", deaths(), r.Ended.Sub(r.Started).Round(time.Second))
	for _, point := range []string{
		"save-run-PowerOff", "save-run-PowerOff-SendOff", "command-off-PowerOff-device1",
		"save-run-PowerOn", "save-run-PowerOn-SendOn", "command-on-PowerOn-device1", "command-on-PowerOn-device0",
	} {
		assert.Contains(t, passed, "before-"+point)
		assert.Contains(t, passed, "after-"+point)
	}
	assert.GreaterOrEqual(t, deaths(), atLevel1+10)
}

// around lists the failpoints of steps with a name like this that were passed.
func around(t *testing.T, markers, step string) []string {
	t.Helper()
	return slices.DeleteFunc(died(t, markers), func(name string) bool { return !strings.Contains(name, "-"+step) })
}

// again makes the failpoints of a step as if they had not been passed, and says
// how many had.
func again(t *testing.T, markers, step string) int {
	t.Helper()
	passed := around(t, markers, step)
	for _, point := range passed {
		require.NoError(t, os.Remove(filepath.Join(markers, point)))
	}
	return len(passed)
}
