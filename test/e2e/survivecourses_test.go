package e2e

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/redfishsim"
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
	_, err := t.s.Cluster.WaitNode(t.ctx, w.Name, scene.IsReady)
	require.NoError(t, err)
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
	d, err := t.s.Management.Deletions("machines", w.Name)
	require.NoError(t, err)
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

// ignoreOn makes a BMC accept a power on and do nothing, or obey again.
func ignoreOn(w *scene.Worker, ignore bool) {
	w.Service.System(0).Quirks(func(q *redfishsim.Quirks) { q.IgnoreOn = ignore })
}
