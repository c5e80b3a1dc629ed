package policy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

const rebootAPI = "example.com/v1"

// askingPolicy is a FencePolicy with two templates.
func askingPolicy() *policy.Check {
	reboot := policy.Template{APIVersion: rebootAPI, Kind: "RebootTemplate", Namespace: "ns", Name: "t"}
	replace := policy.Template{APIVersion: rebootAPI, Kind: "ReplaceTemplate", Namespace: "ns", Name: "t"}
	return &policy.Check{
		Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Source: "a.yaml:1",
		Strategy: policy.CreateRequests, Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
		Escalation: []policy.Escalation{{Order: 1, Timeout: time.Hour, Template: reboot}, {Order: 2, Timeout: time.Hour, Template: replace}},
	}
}

// askingLedger has the check, and Nodes of that name and readiness.
func askingLedger(check *policy.Check, ready map[string]string) *policy.Ledger {
	l := policy.NewLedger(policy.Rules{})
	l.Apply(epoch, changeOf(check))
	for name, status := range ready {
		n := &policy.Node{Name: name, UID: name, Labels: policy.LabelsOf(map[string]string{"name": name}), Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: status, LastTransition: epoch.Add(-time.Hour)}})}
		l.Apply(epoch, changeOf(n))
	}
	return l
}

// TestAskedTarget: the target of a record is found and evaluated as if nobody had been asked, also
// while it counts as one on which somebody works, and whatever becomes of the check.
func TestAskedTarget(t *testing.T) {
	check := askingPolicy()
	l := askingLedger(check, map[string]string{"sick": "Unknown", "well": "True"})
	l.SetRuns(epoch, []policy.OpenRun{{ID: "of the remediator", Node: "sick"}, {ID: "of the remediator", Node: "well"}})
	of := func(node string) policy.AskedTarget {
		return l.AskedTarget(policy.Asked{Check: check.Mark(), Node: node}, epoch)
	}
	sick, well, gone := of("sick"), of("well"), of("gone")
	assert.Equal(t, policy.Unhealthy, sick.Target.Verdict)
	assert.False(t, sick.Recovered || sick.NodeReady || sick.Gone)
	assert.Equal(t, policy.StateActive, sick.State)
	assert.True(t, well.Recovered && well.NodeReady && !well.Gone)
	assert.True(t, gone.Gone && !gone.Recovered)
	assert.NotNil(t, gone.Check)

	l.Apply(epoch, policy.Change{ID: policy.ObjectID{Kind: "Node", Name: "odd"}, Err: errors.New("no number")})
	assert.Equal(t, policy.AskedTarget{Unknown: true}, of("odd"))

	l.SetDisabled(epoch, map[string]string{check.Mark(): "nobody carries it out"})
	assert.Equal(t, policy.StateDisabled, of("well").State)
	assert.True(t, of("well").NodeReady && !of("well").Recovered)
	l.SetDisabled(epoch, nil)

	narrow := askingPolicy()
	narrow.Selector = labels.SelectorFromSet(labels.Set{"name": "well"})
	id := policy.ObjectID{APIVersion: check.APIVersion, Kind: check.Kind, Name: check.Name}
	l.Apply(epoch, policy.Change{ID: id, Value: narrow})
	assert.Nil(t, of("sick").Check, "it does not cover the target any more")
	assert.NotNil(t, of("well").Check)
	cycles := askingPolicy()
	cycles.Strategy, cycles.Escalation = policy.PowerCycleHosts, nil
	l.Apply(epoch, policy.Change{ID: id, Value: cycles})
	assert.Nil(t, of("well").Check, "it asks nobody any more")
	assert.True(t, of("well").NodeReady)
}

// TestAskedMachine: a Machine of the same name with another UID is not the one that was meant.
func TestAskedMachine(t *testing.T) {
	l := policy.NewLedger(policy.Rules{})
	m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", UID: "new"}
	l.Apply(epoch, changeOf(m))
	asked := policy.Asked{MachineAPI: m.APIVersion, Namespace: "ns", Machine: "m", MachineUID: "old", Node: "n"}
	assert.True(t, l.AskedTarget(asked, epoch).Gone)
	asked.MachineUID = "new"
	assert.False(t, l.AskedTarget(asked, epoch).Gone)
}

// TestTriedTemplates: what was tried and is gone counts for the next step of an escalation, and a
// target on which another remediator works is asked for by nobody.
func TestTriedTemplates(t *testing.T) {
	check := askingPolicy()
	l := askingLedger(check, map[string]string{"sick": "Unknown", "well": "True"})
	target := func() policy.TargetReport {
		r, _ := l.CheckReport(check.ID(), epoch)
		for _, found := range r.Targets {
			if found.Node == "sick" {
				return found
			}
		}
		require.Fail(t, "no target")
		return policy.TargetReport{}
	}
	first := policy.Attempt{APIVersion: rebootAPI, Kind: "Reboot", TemplateName: "t", Started: epoch.Add(-time.Hour), TimedOut: epoch}
	second := policy.Attempt{APIVersion: rebootAPI, Kind: "Replace", TemplateName: "t", Started: epoch.Add(-time.Hour), TimedOut: epoch}
	try := func(list ...policy.Attempt) {
		l.SetTried(epoch, map[string]map[string][]policy.Attempt{check.Mark(): {"sick": list}})
	}
	assert.Equal(t, "RebootTemplate", target().Template.Kind)
	try(first)
	assert.Equal(t, "ReplaceTemplate", target().Template.Kind)
	assert.Empty(t, target().Refusals)
	try(first, second)
	assert.Equal(t, []reason.Code{reason.NoTemplateLeft}, target().Refusals)
	try()
	l.SetRuns(epoch, []policy.OpenRun{{ID: "of the remediator", Node: "sick"}})
	assert.Equal(t, reason.UnderRemediation, target().Reason)
	assert.Equal(t, policy.None, target().Action)
}

// TestOwnTemplateIsNeverDisabled: what is known of requests for others concerns no check that is
// carried out by fenced itself.
func TestOwnTemplateIsNeverDisabled(t *testing.T) {
	check := askingPolicy()
	check.Escalation = []policy.Escalation{{Order: 1, Timeout: time.Hour, Template: policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "t"}}}
	assert.True(t, check.MakesRequests())
	assert.False(t, check.AsksOthers())
	assert.True(t, askingPolicy().AsksOthers())
	l := askingLedger(check, map[string]string{"sick": "Unknown"})
	l.SetDisabled(epoch, map[string]string{check.Mark(): "nobody carries it out"})
	r, _ := l.CheckReport(check.ID(), epoch)
	assert.Equal(t, policy.StateActive, r.State)
}

// TestAskedNodeOfAMachine: for a check of Nodes the Node is the target, whatever becomes of its
// Machine; a Node that its remediator has deleted is no Node that no check covers any more.
func TestAskedNodeOfAMachine(t *testing.T) {
	check := askingPolicy()
	l := askingLedger(check, map[string]string{"n": "Unknown"})
	m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", UID: "u", NodeName: "n"}
	machine, node := policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: "m"}, policy.ObjectID{Kind: "Node", Name: "n"}
	l.Apply(epoch, policy.Change{ID: machine, Value: m})
	asked := policy.Asked{Check: check.Mark(), Node: "n", MachineAPI: m.APIVersion, Namespace: "ns", Machine: "m", MachineUID: "u"}
	found := l.AskedTarget(asked, epoch)
	assert.Equal(t, policy.Unhealthy, found.Target.Verdict)
	assert.False(t, found.Gone)

	other := *m
	other.NodeName = ""
	l.Apply(epoch, policy.Change{ID: machine, Value: &other})
	assert.Equal(t, policy.Unhealthy, l.AskedTarget(asked, epoch).Target.Verdict, "the Machine does not name it")
	l.Apply(epoch, policy.Change{ID: machine, Value: m}, policy.Change{ID: node})
	found = l.AskedTarget(asked, epoch)
	assert.True(t, found.Gone)
	assert.Equal(t, check, found.Check, "it still asks for the object")
	l.Apply(epoch, policy.Change{ID: node, Err: errors.New("no number")})
	assert.Equal(t, policy.AskedTarget{Unknown: true}, l.AskedTarget(asked, epoch))

	machines := askingPolicy()
	machines.SelectsNodes = false
	l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: check.APIVersion, Kind: check.Kind, Name: check.Name}, Value: machines}, policy.Change{ID: node})
	assert.False(t, l.AskedTarget(asked, epoch).Gone, "its Machine exists")
}

func nodeCheckOf(evaluator string) *policy.Check {
	c := askingPolicy()
	c.Kind, c.APIVersion, c.Name, c.UID, c.Source, c.Evaluator = policy.NodeHealthCheckKind, policy.Medik8sAPI, "n", "n", "cluster", evaluator
	c.MinHealthy = new(intstr.FromInt32(0))
	return c
}

// Two instances over one store have different names. After a change of the owner the other one does
// not tell a remediator to stop because the annotation names the former one. It asks nobody else, and
// deletes the object once the Node is Ready. // I22
func TestAskedTargetAfterAChangeOfTheOwner(t *testing.T) {
	l := policy.NewLedger(policy.Rules{Instance: "bastion-2"})
	check := nodeCheckOf("bastion-1")
	l.Apply(epoch, changeOf(check))
	n := &policy.Node{Name: "sick", UID: "sick", Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: epoch.Add(-time.Hour)}})}
	l.Apply(epoch, changeOf(n))
	got := l.AskedTarget(policy.Asked{Check: check.Mark(), Node: "sick"}, epoch)
	assert.NotNil(t, got.Check)
	assert.Equal(t, policy.StateDisabled, got.State)
}

// A remediator that deletes the Node of a Machine, as it has announced, is not told to stop.
func TestAskedTargetWhoseRemediatorDeletedTheNode(t *testing.T) {
	l := policy.NewLedger(policy.Rules{Instance: "x"})
	check := nodeCheckOf("x")
	l.Apply(epoch, changeOf(check))
	m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", UID: "m", NodeName: "sick"}
	l.Apply(epoch, changeOf(m))
	got := l.AskedTarget(policy.Asked{Check: check.Mark(), Node: "sick", MachineAPI: m.APIVersion, Namespace: "ns", Machine: "m", MachineUID: "m"}, epoch)
	assert.True(t, got.Gone || got.Check != nil, "the Node is gone and the Machine is not: else escalate.Next gives up in the midst of the work")
}

func TestWhoAsksUs(t *testing.T) {
	fence, other := policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate"}, policy.Template{APIVersion: "example.com/v1"}
	assert.True(t, (&policy.Check{Template: &fence}).IsHandledByFenced())
	assert.False(t, (&policy.Check{Escalation: []policy.Escalation{{Template: fence}, {Template: other}}}).IsHandledByFenced())
	assert.False(t, (&policy.Check{}).IsHandledByFenced(), "a check without templates asks nobody")
}
