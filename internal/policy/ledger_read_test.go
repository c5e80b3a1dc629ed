package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

func ledgerOf(s policy.Snapshot) *policy.Ledger {
	l := policy.NewLedger(s.Rules)
	l.Apply(epoch, changesOf(s)...)
	return l
}

// changesOf lists everything as a watch would after its first listing.
func changesOf(s policy.Snapshot) []policy.Change {
	list := make([]policy.Change, 0, 2*len(s.Nodes)+8)
	for i := range s.Checks {
		list = append(list, changeOf(&s.Checks[i]))
	}
	for i := range s.Budgets {
		list = append(list, changeOf(&s.Budgets[i]))
	}
	for i := range s.Machines {
		list = append(list, changeOf(&s.Machines[i]))
	}
	for _, n := range s.Nodes {
		list = append(list, changeOf(n))
	}
	return list
}

// changeOf is the change that adds or replaces an object.
func changeOf(value any) policy.Change {
	var id policy.ObjectID
	switch v := value.(type) {
	case *policy.Check:
		id = policy.ObjectID{APIVersion: v.APIVersion, Kind: v.Kind, Namespace: v.Namespace, Name: v.Name}
	case *policy.DisruptionBudget:
		id = policy.ObjectID{APIVersion: policy.FencedAPI, Kind: policy.DisruptionBudgetKind, Name: v.Name}
	case *policy.Machine:
		id = policy.ObjectID{APIVersion: v.APIVersion, Kind: "Machine", Namespace: v.Namespace, Name: v.Name}
	case *policy.Node:
		id = policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: v.Name}
	case *policy.Host:
		id = policy.ObjectID{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: v.Namespace, Name: v.Name}
	default:
		panic("of no kind")
	}
	return policy.Change{ID: id, Value: value}
}

func TestCheckReportIsOneCheckByItself(t *testing.T) {
	s := sickWorld(time.Hour, powerCheck("a"), powerCheck("b"))
	l := ledgerOf(s)
	r, ok := l.CheckReport(s.Checks[1].ID(), epoch)
	require.True(t, ok)
	assert.Equal(t, policy.Decide(sickWorld(time.Hour, powerCheck("b")), epoch).Checks[0], r)
	_, ok = l.CheckReport(policy.CheckID{Name: "c"}, epoch)
	assert.False(t, ok)
}

func TestWaitingListsWhatTimeDecides(t *testing.T) {
	soon := policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-2", UID: "m2", NodeName: "n-2"}
	p := powerCheck("a")
	s := sickWorld(time.Hour, p)
	s.Machines = append(s.Machines, soon)
	s.Nodes["n-2"] = &policy.Node{Name: "n-2", Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: epoch.Add(-time.Second)}})}
	l := ledgerOf(s)
	nodes := func() (list []string) {
		for _, x := range l.Waiting(p.ID()) {
			list = append(list, x.Node)
		}
		return list
	}
	assert.Equal(t, []string{"n-2"}, nodes(), "what is decided already waits for nothing")
	l.SetReadsOff(epoch, "n-1", true)
	assert.ElementsMatch(t, []string{"n-1", "n-2"}, nodes())
	l.SetReadsOff(epoch, "n-2", true)
	assert.ElementsMatch(t, []string{"n-1", "n-2"}, nodes(), "each once")
	p.Paused = true
	assert.Empty(t, ledgerOf(policy.Snapshot{Checks: []policy.Check{p}, Machines: s.Machines, Nodes: s.Nodes}).Waiting(p.ID()))
}

// Just before acting, a pause of the check as a whole counts, too.
func TestJudgeHeedsAPauseThatCameMeanwhile(t *testing.T) {
	c := policy.Check{
		Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: "c", Selector: labels.Everything(), SelectsNodes: true,
		Strategy: policy.CreateRequests, Template: &policy.Template{APIVersion: "a/v1", Kind: "ATemplate", Name: "t"}, MinHealthy: new(intstr.FromString("51%")),
		Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
	}
	x := policy.Subject{Node: sickWorld(time.Hour).Nodes["n-1"]}
	assert.Empty(t, policy.Evaluate(&c, policy.CheckContext{}, x, epoch).Refusals)
	c.PauseRequests = []string{"maintenance"}
	assert.Equal(t, []reason.Code{reason.PauseRequested}, policy.Evaluate(&c, policy.CheckContext{}, x, epoch).Refusals)
}

// Both API families may have a Machine of one name.
func TestMachineInTellsLineagesApart(t *testing.T) {
	l := ledgerOf(policy.Snapshot{Machines: []policy.Machine{
		{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", UID: "a"},
		{APIVersion: policy.ClusterAPIV1Beta2, Namespace: "ns", Name: "m", UID: "b"},
	}})
	assert.Equal(t, "a", l.MachineIn(policy.OpenShiftMachineAPI, "ns", "m").UID)
	assert.Equal(t, "b", l.MachineIn(policy.ClusterAPIV1Beta1, "ns", "m").UID, "whatever version it was read in")
	assert.Nil(t, l.MachineIn(policy.ClusterAPIV1Beta2, "ns", "n"))
}
