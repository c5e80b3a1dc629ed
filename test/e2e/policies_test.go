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

// Beside the documented policies: a host that has lost its power is not waited for, a limit is
// zero, and a policy selects nothing.
const policies = `
---
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: basement}
spec:
  nodeSelector: {matchLabels: {scene/pool: basement}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 20m}]
  strategy: PowerCycle
  shortenOnEvidence: true
---
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: attic}
spec:
  nodeSelector: {matchLabels: {scene/pool: attic}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  limit: 30%
  strategy: PowerCycle
---
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: nowhere}
spec:
  nodeSelector: {matchLabels: {scene/pool: nowhere}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  strategy: PowerCycle
`

// FencePolicies and a DisruptionBudget from policies.d, in a cluster without any custom resource. Of
// the documented racks one Node may be down at a time; the pets count among them and are never touched.
func TestFencePolicies(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Policies: map[string]string{"house.yaml": string(soon(t, "plain")) + policies},
		Workers: []scene.Spec{
			{Name: "rack-1", Pool: "racks", Protocol: scene.Redfish}, {Name: "rack-2", Pool: "racks", Protocol: scene.IPMI},
			{Name: "pet", Pool: "pets", Protocol: scene.IPMI}, {Name: "unplugged", Pool: "basement", Protocol: scene.IPMI},
			{Name: "forgotten", Pool: "basement", Protocol: scene.IPMI}, {Name: "attic-1", Pool: "attic", Protocol: scene.IPMI},
			{Name: "well", Pool: "racks", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireCoverage(ctx, t, s)

	rack1, rack2, unplugged := s.Worker("rack-1"), s.Worker("rack-2"), s.Worker("unplugged")
	taint, wit := watchTaint(t, s, rack1), watchBMC(t, rack1)
	ignoreOn(rack1, true) // it stays away until the other one was seen to wait
	rack1.Kubelet.Hang()
	s.Worker("pet").Kubelet.Hang()
	s.Worker("forgotten").Kubelet.Hang()
	require.NoError(t, unplugged.BMC.SetPower(false))
	awaitOff(t, rack1)
	rack2.Kubelet.Hang()
	requireBudgetStops(ctx, t, s, rack2)
	requirePetSpared(ctx, t, s)

	ignoreOn(rack1, false)
	r := awaitRun(ctx, t, s, rack1.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireRebooted(ctx, t, s, rack1)
	require.True(t, wit.saidOn())
	wit.requireOffAt(t, taint.first(t))
	awaitOff(t, rack2) // the budget has room again
	assert.True(t, rack2.FirstAsked().After(r.Ended), "the second rack waited for the first")

	r = awaitRun(ctx, t, s, unplugged.Name, result(wire.ResultDone))
	assert.Contains(t, r.Trigger, "BMC reads Off")
	requireBack(ctx, t, s, unplugged)
	requireOneDeletion(t, s, unplugged)
	x, err := s.Explain(ctx, "forgotten")
	require.NoError(t, err)
	assert.Equal(t, "Pending", x.Verdict, "a host that is on is waited for")
	assert.Greater(t, time.Until(x.Earliest), 10*time.Minute)
	assert.True(t, s.Worker("forgotten").BMC.Power())
	untouched(ctx, t, s, s.Worker("forgotten"))
	requireNotAsked(ctx, t, s, "pet", "well", "attic-1")
}

// requireCoverage checks what check-config says of the file.
func requireCoverage(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	checks := covered(ctx, t, s, 2)
	targets := map[string]int{}
	for name, k := range checks {
		assert.Equal(t, "Active", k.State, name)
		assert.Contains(t, k.Source, "house.yaml:", name)
		targets[name] = k.Targets
	}
	assert.Equal(t, map[string]int{"racks": 4, "pets": 1, "one-rack": 3, "basement": 2, "attic": 1, "nowhere": 0}, targets)
	assert.Equal(t, []wire.Overlap{{Check: "FencePolicy pets", Targets: 1}}, checks["racks"].Overlaps)
	assert.Equal(t, "DisruptionBudget", checks["one-rack"].Kind)
	codes := map[string][]string{}
	for name, k := range checks {
		for _, f := range k.Findings {
			assert.True(t, f.Warning, "%s: %s", name, f.Code)
			codes[name] = append(codes[name], f.Code)
		}
	}
	assert.Equal(t, map[string][]string{"nowhere": {"SelectsNothing"}, "attic": {"LimitIsZero"}}, codes)
}

// requireBudgetStops checks that a Node that is down must wait for another.
func requireBudgetStops(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	x := awaitRefusal(ctx, t, s, w.Name, "Budget")
	assert.Equal(t, "Unhealthy", x.Verdict)
	_, value, threshold, source := gateOf(t, x, "Budget")
	assert.Equal(t, "2 of 3 unavailable", value)
	assert.Equal(t, "at most 1 (1)", threshold)
	assert.Equal(t, "DisruptionBudget one-rack", source)
	a := planned(ctx, t, s, w.Name, "Budget", 0)
	assert.Equal(t, []string{"FencePolicy racks", "PowerCycle"}, []string{a.Check, a.Action})
	requireNotAsked(ctx, t, s, w.Name)
}

// requirePetSpared checks that a policy that would fence a pet is overruled.
func requirePetSpared(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	x := awaitRefusal(ctx, t, s, "pet", "Overlap")
	assert.Equal(t, "Unhealthy", x.Verdict)
	_, value, _, source := gateOf(t, x, "Overlap")
	assert.Equal(t, []string{"this check only counts", "check pets"}, []string{value, source})
	planned(ctx, t, s, "pet", "Overlap", 0)
}

// A plan says what would be done, before it is done: a BMC that does not answer
// gives the time to ask for it.
func TestPlanBeforeItIsDone(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{{Name: "mute", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	r := fencectl(ctx, t, s, 0, "plan")
	assert.Contains(t, r.Stdout, "no check asks for anything")
	w := s.Worker("mute")
	w.Silence()
	w.Kubelet.Hang()
	a := planned(ctx, t, s, w.Name, "", 2)
	assert.Equal(t, wire.PlannedAction{
		Order: 1, Check: "MachineHealthCheck " + rig.Namespace + "/workers", Machine: rig.Namespace + "/mute", Node: "mute", Action: "PowerCycle",
		Message: a.Message,
	}, a)
	assert.Contains(t, a.Message, "Ready is Unknown")
	awaitRefusal(ctx, t, s, w.Name, "BMCUnreachable")
	assert.True(t, w.BMC.Power())
	untouched(ctx, t, s, w)
}
