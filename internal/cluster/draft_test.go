package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Deleting the Node of a k3s or RKE2 server removes its etcd member. So a control-plane
// Node is tainted, unless the cluster is OpenShift or the configuration says otherwise. A
// check may ask for the taint, but not for the deletion.
func TestControlPlaneIsolation(t *testing.T) {
	const taint, remove = remediate.IsolateTaint, remediate.IsolateDelete
	for name, c := range map[string]struct {
		control  bool
		operator remediate.Isolation
		machine  string // apiVersion of the Machine
		check    policy.Check
		want     remediate.Isolation
	}{
		"a worker": {machine: policy.ClusterAPIV1Beta2, want: remove},
		"a worker whose check asks for the taint": {check: policy.Check{Isolation: string(taint)}, want: taint},
		"no Machine":                                 {control: true, want: taint},
		"Cluster API":                                {control: true, machine: policy.ClusterAPIV1Beta2, want: taint},
		"OpenShift by the Machine":                   {control: true, machine: policy.OpenShiftMachineAPI, want: remove},
		"OpenShift by the check":                     {control: true, check: policy.Check{APIVersion: policy.OpenShiftMachineAPI}, want: remove},
		"OpenShift, and the operator chose":          {control: true, operator: taint, machine: policy.OpenShiftMachineAPI, want: taint},
		"the operator chose":                         {control: true, operator: remove, machine: policy.ClusterAPIV1Beta2, want: remove},
		"a check that asks for the deletion":         {control: true, machine: policy.ClusterAPIV1Beta2, check: policy.Check{Isolation: string(remove)}, want: taint},
		"a check that asks for the taint":            {control: true, machine: policy.OpenShiftMachineAPI, check: policy.Check{Isolation: string(taint)}, want: taint},
		"a check for the taint against the operator": {control: true, operator: remove, check: policy.Check{Isolation: string(taint)}, want: taint},
	} {
		t.Run(name, func(t *testing.T) {
			d := Drafter{Isolation: remove, ControlPlaneIsolation: c.operator}
			r := remediate.Run{Isolation: remove, ControlPlane: c.control, Target: remediate.Target{MachineAPI: c.machine}}
			d.override(&r, &c.check)
			assert.Equal(t, c.want, r.Isolation)
		})
	}
}

// A check sets deadlines and attempts for its own runs. The others come from the
// configuration.
func TestCheckSetsTheLimitsOfItsRuns(t *testing.T) {
	base := remediate.Limits{OffDeadline: 1, OnDeadline: 2, ReadyTimeout: 3, RunTimeout: 4, MaxAttempts: 5}
	d := Drafter{}
	r := remediate.Run{Limits: base}
	d.override(&r, &policy.Check{})
	assert.Equal(t, base, r.Limits)
	check := &policy.Check{MaxAttempts: 9}
	check.Deadlines.PowerOff, check.Deadlines.PowerOn, check.Deadlines.NodeReady, check.Deadlines.Run = time.Second, 2*time.Second, 3*time.Second, 4*time.Second
	d.override(&r, check)
	assert.Equal(t, remediate.Limits{OffDeadline: time.Second, OnDeadline: 2 * time.Second, ReadyTimeout: 3 * time.Second, RunTimeout: 4 * time.Second, MaxAttempts: 9}, r.Limits)
}

// Where another template follows that of fenced, that one decides about the Machine. // I14
func TestNextTemplateDecidesAboutTheMachine(t *testing.T) {
	own := policy.Template{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind + "Template", Name: "power"}
	other := policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Name: "next"}
	for name, c := range map[string]struct {
		templates []policy.Template
		replaces  bool
	}{
		"another follows":   {[]policy.Template{own, other}, false},
		"fenced comes last": {[]policy.Template{other, own}, true},
	} {
		check := &policy.Check{Kind: policy.NodeHealthCheckKind}
		for _, template := range c.templates {
			check.Escalation = append(check.Escalation, policy.Escalation{Template: template})
		}
		r := remediate.Run{Limits: remediate.Limits{Reprovision: true}}
		Drafter{}.override(&r, check)
		assert.Equal(t, c.replaces, r.Limits.Reprovision, name)
	}
}

// The limits of a run come from the configuration, the check and the target.
func TestLimitsOfADraft(t *testing.T) {
	draft := func(o Options, target policy.TargetReport) remediate.Limits {
		o.Draft.Limits = NewLimits(guard.Limits{}, remediate.Limits{ReadyTimeout: 10 * time.Minute})
		a, ok := New(o, time.Now()).CandidateForCheck(&policy.Check{Strategy: policy.PowerCycleHosts}, &target)
		assert.True(t, ok)
		return a.Draft.Limits
	}
	assert.Equal(t, remediate.Limits{ReadyTimeout: 10 * time.Minute}, draft(Options{}, policy.TargetReport{Node: "n", StartupTimeout: time.Minute}))
	assert.Equal(t, 20*time.Minute, draft(Options{}, policy.TargetReport{Node: "n", StartupTimeout: 20 * time.Minute}).ReadyTimeout, "the larger one")
	assert.True(t, draft(Options{Draft: Drafter{Reprovision: true}}, policy.TargetReport{Node: "n"}).Reprovision)
	assert.True(t, draft(Options{}, policy.TargetReport{Node: "n", Action: policy.MarkOwner}).ReplaceControlPlane, "its owner guards the quorum") // I14
	assert.True(t, draft(Options{Rules: policy.Rules{DeleteControlPlaneMachines: true}}, policy.TargetReport{Node: "n"}).ReplaceControlPlane)
	assert.False(t, draft(Options{}, policy.TargetReport{Node: "n", Action: policy.DeleteMachine}).ReplaceControlPlane)
}

// A request or a probe for the Machine of one API says nothing about the Machine of its name on another.
func TestTargetsOfTwoAPIsAreTwo(t *testing.T) {
	of := func(api string) string {
		return TargetKey(&policy.TargetReport{Machine: "prod/m", MachineAPIVersion: api})
	}
	assert.NotEqual(t, of(policy.OpenShiftMachineAPI), of(policy.ClusterAPIV1Beta2))
	assert.Equal(t, of(policy.ClusterAPIV1Beta1), of(policy.ClusterAPIV1Beta2))
}

// TestRunIDsAreNames: a run that is made can be named in an order.
func TestRunIDsAreNames(t *testing.T) {
	for _, at := range []time.Time{time.Now(), time.UnixMilli(1), time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)} {
		id := NewRunID(at)
		require.NoError(t, api.CheckRun(id))
	}
}
