package policy

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

// nodePolicy power-cycles every Node that is silent for a minute.
func nodePolicy() *Check {
	return &Check{Kind: FencePolicyKind, APIVersion: FencedAPI, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Strategy: PowerCycleHosts,
		Conditions: []UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}}
}

func silentNode(name string) *Node {
	return &Node{Name: name, UID: name, Conditions: []Condition{{Type: "Ready", Status: "Unknown", LastTransition: ledgerEpoch.Add(-time.Hour)}}}
}

func put(value any) Change {
	switch v := value.(type) {
	case *Check:
		return Change{ID: ObjectID{APIVersion: v.APIVersion, Kind: v.Kind, Namespace: v.Namespace, Name: v.Name}, Value: v}
	case *Node:
		return Change{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: v.Name}, Value: v}
	case *Machine:
		return Change{ID: ObjectID{APIVersion: v.APIVersion, Kind: "Machine", Namespace: v.Namespace, Name: v.Name}, Value: v}
	}
	panic("of no kind")
}

// acts lists the targets that would be acted on, as the ledger and Decide say.
func acts(t *testing.T, l *Ledger) (list []string) {
	t.Helper()
	require.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
	for _, c := range l.Acting(ledgerEpoch) {
		for _, x := range c.Targets {
			if x.Acts() {
				list = append(list, subjectName(x.Node, x.Machine)+" "+x.Machine)
			}
		}
	}
	return list
}

// The paused Machine of a Node turns unreadable: it is not absent, and neither is
// what nobody can tell the kind of.
func TestUnreadMachineIsNotAbsent(t *testing.T) {
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", UID: "u", NodeName: "n", Paused: true}
	id := put(m).ID
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(nodePolicy()), put(silentNode("n")), put(m))
	require.Empty(t, acts(t, l), "the Machine is paused")
	l.Apply(ledgerEpoch, Change{ID: id, Err: errors.New("spec.providerID is a number")})
	require.Empty(t, acts(t, l))
	x := l.Report(ledgerEpoch).Checks[0].Targets[0]
	assert.Equal(t, reason.Undecodable, x.Reason)
	assert.Equal(t, reason.Undecodable, l.Doubt(nil, l.Node("n")).Reason)
	assert.Equal(t, reason.Undecodable, l.Doubt(nil, nil).Reason)
	l.Apply(ledgerEpoch, Change{ID: id})
	assert.Equal(t, []string{"n "}, acts(t, l), "now it is gone")
	assert.Zero(t, l.Doubt(nil, l.Node("n")))
	l.Apply(ledgerEpoch, Change{ID: ObjectID{Name: "x"}, Err: errors.New("it has no kind")})
	assert.Empty(t, acts(t, l))
}

// A Node that a Machine claims needs no other Machine to be read.
func TestUnreadMachineSparesTheOthers(t *testing.T) {
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(nodePolicy()), put(silentNode("n")), put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n"}),
		Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: "ns", Name: "o"}, Err: errors.New("x")})
	assert.Equal(t, []string{"n ns/m"}, acts(t, l))
}

// A Node of another cluster has the name that a Machine gives. // I4
func TestNodeOfTheSameName(t *testing.T) {
	c := &Check{Kind: MachineHealthCheckKind, APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "c", ClusterName: "c", Selector: labels.Everything(),
		Strategy: MarkOwners, Conditions: nodePolicy().Conditions}
	n := silentNode("n")
	n.ProviderID = "metal3://other/host-7/n"
	m := &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "m", UID: "u", NodeName: "n", ProviderID: "metal3://ns/host-1/m", ClusterName: "c",
		ControllerOwner: Owner{Kind: "MachineSet", Name: "s", UID: "s"}}
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(c), put(n), put(m))
	require.Empty(t, acts(t, l))
	assert.Equal(t, reason.NodeMismatch, l.Doubt(m, n).Reason)
	fresh := Evaluate(c, CheckContext{}, Subject{Machine: m, Node: n}, ledgerEpoch)
	assert.Equal(t, reason.NodeMismatch, fresh.Reason, "the engine asks with fresh objects")
	assert.Equal(t, None, fresh.Action)

	same := *n
	same.ProviderID, same.UID = m.ProviderID, "registered anew"
	l.Apply(ledgerEpoch, put(&same))
	assert.Equal(t, []string{"n ns/m"}, acts(t, l))
}

// Two Machines name one Node: only the one whose host it is may be touched.
func TestOneNodeOfTwoMachines(t *testing.T) {
	own := Owner{Kind: "MachineSet", Name: "s", UID: "u"}
	wrong := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "a-wrong", NodeName: "n", ProviderID: "baremetalhost:///ns/h1/1", ControllerOwner: own}
	right := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "b-right", NodeName: "n", ProviderID: "baremetalhost:///ns/h2/2", ControllerOwner: own}
	nodes := nodePolicy()
	nodes.Strategy = DeleteMachines
	machines := *nodes
	machines.Name, machines.SelectsNodes = "m", false
	for _, c := range []*Check{nodes, &machines} {
		for providerID, want := range map[string][]string{
			"baremetalhost:///ns/h2/2": {"n ns/b-right"},
			"baremetalhost:///ns/h2":   {"n ns/b-right"}, // as it was once written
			"baremetalhost:///ns/h3/3": nil,
			"":                         nil,
		} {
			l := NewLedger(Rules{Namespaces: []string{"ns"}})
			n := silentNode("n")
			n.ProviderID = providerID
			l.Apply(ledgerEpoch, put(c), put(n), put(wrong), put(right))
			assert.Equal(t, want, acts(t, l), "%s %s", c.Name, providerID)
			if want == nil {
				assert.Equal(t, reason.NodeMismatch, l.Doubt(l.MachineOf("n"), n).Reason)
			} else {
				assert.Same(t, right, l.MachineOf("n"))
			}
		}
	}
}

// Both API families may show one Machine; within one API family no two are one.
func TestOneNodeOfTwoMachinesAlike(t *testing.T) {
	a := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "a", NodeName: "n", ProviderID: "baremetalhost:///ns/h1/1"}
	b := *a
	b.Name = "b"
	n := silentNode("n")
	n.ProviderID = a.ProviderID
	c := nodePolicy()
	c.SelectsNodes = false
	nodes := nodePolicy()
	nodes.Name = "nodes"
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(c), put(nodes), put(n), put(a), put(&b))
	require.Empty(t, acts(t, l))
	assert.Equal(t, reason.NodeMismatch, l.Doubt(a, n).Reason)
	other := b
	other.APIVersion = ClusterAPIV1Beta2
	l.Apply(ledgerEpoch, Change{ID: put(&b).ID}, put(&other))
	assert.Equal(t, []string{"n ns/a", "n ns/b"}, acts(t, l), "by the check that selects Machines")
}

// The Node is gone, and nobody can say any more whose it was.
func TestGoneNodeOfTwoMachines(t *testing.T) {
	c := nodePolicy()
	c.SelectsNodes = false
	a := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "a", NodeName: "n", ProviderID: "baremetalhost:///ns/h1"}
	b := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "b", NodeName: "n"}
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(c), put(a))
	require.Equal(t, []string{"n ns/a"}, acts(t, l))
	l.Apply(ledgerEpoch, put(b))
	require.Empty(t, acts(t, l))
	l.Apply(ledgerEpoch, Change{ID: put(b).ID})
	require.Equal(t, []string{"n ns/a"}, acts(t, l))
	twin := *a
	twin.APIVersion = ClusterAPIV1Beta2
	l.Apply(ledgerEpoch, put(&twin))
	assert.Len(t, acts(t, l), 2, "one Machine that both API families show")
}

// A doubt does not come and go with the clocks of the check.
func TestDoubtDoesNotFollowTheClock(t *testing.T) {
	c := &Check{Kind: NodeHealthCheckKind, APIVersion: Medik8sAPI, Name: "c", UID: "u", Selector: labels.Everything(), SelectsNodes: true,
		Strategy: CreateRequests, Template: &worldTemplate, MinHealthy: new(intstr.FromInt32(0)), Conditions: []UnhealthyCondition{{"Ready", "Unknown", 2 * time.Hour}}}
	rival := &Check{Kind: MachineHealthCheckKind, APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "spot", Selector: labels.Everything(),
		Conditions: []UnhealthyCondition{{terminating, "True", 0}}}
	n := silentNode("n")
	n.Conditions = append(n.Conditions, Condition{Type: terminating, Status: "False"})
	q := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: "a", Name: "n", Owners: []Owner{{Kind: NodeHealthCheckKind, Name: "c", UID: "u"}}}
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(c), put(rival), put(n), Change{ID: ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name}, Value: q},
		Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: "ns", Name: "m"}, Err: errors.New("x")})
	for _, now := range []time.Time{ledgerEpoch, ledgerEpoch.Add(3 * time.Hour)} {
		assert.Equal(t, reason.Undecodable, Decide(l.Snapshot(), now).Checks[0].Targets[0].Reason, now)
	}
}
