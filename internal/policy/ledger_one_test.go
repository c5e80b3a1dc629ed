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
	for i := range s.Checks {
		c := &s.Checks[i]
		l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}, Value: c})
	}
	for i := range s.Machines {
		m := &s.Machines[i]
		l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, Value: m})
	}
	for name, n := range s.Nodes {
		l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: n})
	}
	return l
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
	s.Nodes["n-2"] = &policy.Node{Name: "n-2", Conditions: []policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: epoch.Add(-time.Second)}}}
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
