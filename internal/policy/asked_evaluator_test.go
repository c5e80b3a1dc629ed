package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/policy"
)

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
	l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: check.APIVersion, Kind: check.Kind, Name: check.Name}, Value: check})
	n := &policy.Node{Name: "sick", UID: "sick", Conditions: []policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: epoch.Add(-time.Hour)}}}
	l.Apply(epoch, policy.Change{ID: policy.ObjectID{Kind: "Node", Name: "sick"}, Value: n})
	got := l.AskedTarget(policy.Asked{Check: check.Mark(), Node: "sick"}, epoch)
	assert.NotNil(t, got.Check)
	assert.Equal(t, policy.StateDisabled, got.State)
}

// The annotation names several instances that take turns.
func TestSeveralEvaluators(t *testing.T) {
	for text, want := range map[string]policy.State{
		"bastion-2": policy.StateActive, "bastion-1,bastion-2": policy.StateActive, "bastion-2, bastion-3": policy.StateActive, " bastion-2 ": policy.StateActive,
		"bastion-1": policy.StatePaused, "bastion-1,bastion-3": policy.StatePaused, "bastion-20,xbastion-2": policy.StatePaused, ",": policy.StatePaused,
	} {
		l := policy.NewLedger(policy.Rules{Instance: "bastion-2"})
		check := nodeCheckOf(text)
		l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: check.APIVersion, Kind: check.Kind, Name: check.Name}, Value: check})
		found := l.Counters()
		require.Len(t, found, 1)
		assert.Equal(t, want, found[0].State, "%q", text)
	}
}

// A remediator that deletes the Node of a Machine, as it has announced, is not told to stop.
func TestAskedTargetWhoseRemediatorDeletedTheNode(t *testing.T) {
	l := policy.NewLedger(policy.Rules{Instance: "x"})
	check := nodeCheckOf("x")
	l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: check.APIVersion, Kind: check.Kind, Name: check.Name}, Value: check})
	m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", UID: "m", NodeName: "sick"}
	l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: "m"}, Value: m})
	got := l.AskedTarget(policy.Asked{Check: check.Mark(), Node: "sick", MachineAPI: m.APIVersion, Namespace: "ns", Machine: "m", MachineUID: "m"}, epoch)
	assert.True(t, got.Gone || got.Check != nil, "the Node is gone and the Machine is not: else escalate.Next gives up in the midst of the work")
}
