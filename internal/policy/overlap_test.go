package policy

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/reason"
)

// TestOneMoreDoubtKeepsTheOverlap: what a check refuses to another one stays refused where the first one comes
// into doubt, under whichever name the two know the Machine. // I4, I22
func TestOneMoreDoubtKeepsTheOverlap(t *testing.T) {
	const host = "p://1"
	own := Owner{Kind: "MachineSet", Name: "s", UID: "u"}
	failed := Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n", ProviderID: host, Phase: "Failed", ControllerOwner: own}
	running := failed
	running.Phase = "Running"
	// twin is the same Machine in the Cluster API.
	twin := func(name string) *Machine {
		return &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: name, NodeName: "n", ProviderID: host, Labels: labels.Set{"twin": ""}, ControllerOwner: own}
	}
	machines := func(strategy Strategy) *Check {
		return &Check{Kind: MachineHealthCheckKind, APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "machines", Selector: labels.Everything(),
			Strategy: strategy, Conditions: nodePolicy().Conditions}
	}
	twins := nodePolicy()
	twins.SelectsNodes, twins.Selector = false, labels.SelectorFromSet(labels.Set{"twin": ""})
	asks := nodePolicy()
	asks.Strategy, asks.Template = CreateRequests, &worldTemplate
	asked := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: "a", Name: "n"}

	for name, c := range map[string]struct {
		world   []Change
		doubt   Change
		besides []reason.Code // of the power cycle, beside Overlap
	}{
		"the Node of both cannot be read": {
			[]Change{put(&failed), put(twin("other")), put(machines(DeleteMachines)), put(twins)},
			Change{ID: ObjectID{Name: "x"}, Err: errors.New("it has no kind")}, nil,
		},
		"of the two Machines of the Node, the check of Nodes names the other": {
			[]Change{put(silentNode("n")), put(&running), put(machines(DeleteMachines)), put(nodePolicy())},
			put(twin("a-other")), nil,
		},
		"the other remediator is at work": {
			[]Change{put(silentNode("n")), put(&running), put(machines(PowerCycleHosts)), put(asks),
				{ID: ObjectID{APIVersion: asked.APIVersion, Kind: asked.Kind, Namespace: asked.Namespace, Name: asked.Name}, Value: asked}},
			put(twin("other")),
			[]reason.Code{reason.Contested},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledgerWith(Rules{Namespaces: []string{"ns"}, RequestNamespaces: []string{"a"}}, c.world...)
			onMachine := func() *TargetReport {
				r := l.Report(ledgerEpoch)
				at := slices.IndexFunc(r.Checks, func(c CheckReport) bool { return c.Name == "machines" })
				return &r.Checks[at].Targets[0]
			}
			want := append([]reason.Code{reason.Overlap}, c.besides...)
			require.Equal(t, want, onMachine().Refusals)
			l.Apply(ledgerEpoch, c.doubt)
			require.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
			x := onMachine()
			assert.Equal(t, want, x.Refusals)
			require.Len(t, x.overlaps, 1, "it says why")
			assert.Equal(t, "check p", x.overlaps[0].Source)
		})
	}
}

// TestDoubtKeepsTheClock: a check in doubt has handed its target over from the moment on at which it would say so
// without the doubt. The ledger evaluates it then. // I22
func TestDoubtKeepsTheClock(t *testing.T) {
	c := &Check{Kind: MachineHealthCheckKind, APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "c", Selector: labels.Everything(), Strategy: MarkOwners,
		MachineConditions: []UnhealthyCondition{{Type: "Sound", Status: "False", Timeout: time.Minute}}}
	m := &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "m", NodeName: "n", ProviderID: "p://1", OwnerRemediated: "False",
		Conditions: []Condition{{Type: "Sound", Status: "False", LastTransition: ledgerEpoch}}}
	n := silentNode("n")
	n.ProviderID = "p://2"
	l := ledgerWith(Rules{}, put(c), put(m), put(n))
	target := func(r Report) *TargetReport { return &r.Checks[0].Targets[0] }
	require.Equal(t, reason.NodeMismatch, target(l.Report(ledgerEpoch)).Reason)
	require.False(t, target(l.Report(ledgerEpoch)).isHandedOver())
	require.Equal(t, ledgerEpoch.Add(time.Minute+1), l.Next)
	require.True(t, target(Decide(l.Snapshot(), l.Next)).isHandedOver())
	assert.True(t, target(l.Report(l.Next)).isHandedOver())
}

// TestDisprovedMachineFreezesNobody: the Node shows that it is not the Machine's, so the doubt about that Machine
// is none about the Machine that the Node is of.
func TestDisprovedMachineFreezesNobody(t *testing.T) {
	own := Owner{Kind: "MachineSet", Name: "s", UID: "u"}
	wrong := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "a-wrong", NodeName: "n", ProviderID: "p://1", ControllerOwner: own}
	right := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "b-right", NodeName: "n", ProviderID: "p://2", ControllerOwner: own}
	n := silentNode("n")
	n.ProviderID = right.ProviderID
	one := nodePolicy()
	one.SelectsNodes, one.Strategy = false, DeleteMachines
	two := *one
	two.Name = "two"
	l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(one), put(&two), put(n), put(wrong), put(right))
	assert.Equal(t, []string{"n ns/b-right", "n ns/b-right"}, acts(t, l))
}

// TestDoubtReachesNoMinimum: a range opens when enough targets are known to be unhealthy. // I11
func TestDoubtReachesNoMinimum(t *testing.T) {
	policies := nodePolicy()
	policies.SelectsNodes = false
	machines := &Check{Kind: MachineHealthCheckKind, APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "c", Selector: labels.Everything(),
		Strategy: MarkOwners, Conditions: policies.Conditions}
	for _, c := range []*Check{policies, machines} {
		c.UnhealthyRange = "[2-5]"
		machine := func(name, node string) *Machine {
			return &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: name, NodeName: node, ControllerOwner: Owner{Kind: "MachineSet", Name: "s", UID: "u"}}
		}
		healthy := func(name string) *Node {
			n := silentNode(name)
			n.Conditions = []Condition{{Type: "Ready", Status: "True"}}
			return n
		}
		l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(c), put(silentNode("sick")), put(healthy("n")), put(machine("m-0", "sick")), put(machine("m-1", "n")))
		require.Empty(t, acts(t, l), "one is not enough")
		l.Apply(ledgerEpoch, put(machine("m-2", "n")))
		assert.Empty(t, acts(t, l), "two Machines name the same Node, which is Ready")
		r := l.Report(ledgerEpoch).Checks[0]
		assert.Equal(t, 2, r.doubtful)
		assert.Contains(t, r.Message, "3 of 3 targets are not healthy")
		assert.Contains(t, r.Message, "; 2 of them in doubt")
		assert.Contains(t, r.LimitGate().Value, "; 2 of them in doubt")
		l.Apply(ledgerEpoch, Change{ID: put(machine("m-2", "n")).ID}, put(silentNode("n")))
		assert.Len(t, acts(t, l), 2, "now two are")
	}
}
