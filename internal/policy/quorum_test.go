package policy

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
)

func controlPlaneOf(node *Node) *Node {
	node.ControlPlane = true
	return node
}

func readyNode(name string) *Node {
	return &Node{Name: name, UID: name, Conditions: []Condition{{Type: "Ready", Status: "True"}}}
}

func member(name string) Change {
	return Change{ID: ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: "openshift-etcd", Name: "etcd-" + name}, Value: &Pod{"openshift-etcd", "etcd-" + name, name, true, true}}
}

// Five members, of two of which the Nodes are gone: etcd still counts five. // I12
func TestQuorumCountsMembersThatAreGone(t *testing.T) {
	seen := []Member{{"c", true}, {"d", true}, {"e", true}}
	code, _ := Quorum(seen, "c", 3, Rules{})
	require.Empty(t, code)
	code, text := Quorum(seen, "c", 5, Rules{})
	assert.Equal(t, reason.QuorumLost, code)
	assert.Equal(t, "2 of 5 members are healthy without it, 3 are needed", text)
	code, _ = Quorum(seen, "c", 0, Rules{})
	assert.Empty(t, code, "nobody knows of more than what is seen")
	code, _ = Quorum(seen, "c", 3, Rules{ControlPlaneNever: true})
	assert.Equal(t, reason.ControlPlane, code, "never is never, whatever the quorum")
	code, _ = Quorum(nil, "c", 3, Rules{ControlPlaneNever: true, ExternalEtcd: true})
	assert.Equal(t, reason.ControlPlane, code)
}

// What is known of the size of the control plane, by whatever shows most of it.
func TestControlPlaneSize(t *testing.T) {
	of := func(api, name, node, cluster string) *Machine {
		return &Machine{APIVersion: api, Namespace: "ns", Name: name, NodeName: node, ClusterName: cluster, ControlPlane: true}
	}
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	require.Zero(t, l.ControlPlaneSize())
	l.Apply(ledgerEpoch, put(controlPlaneOf(readyNode("a"))), put(readyNode("worker")))
	assert.Equal(t, 1, l.ControlPlaneSize(), "by the Node's role")
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "b", ControlPlane: true}, {ID: "s", Node: "gone"}})
	assert.Equal(t, 2, l.ControlPlaneSize(), "our run has taken b's Node away")
	l.Apply(ledgerEpoch, put(of(OpenShiftMachineAPI, "m-a", "a", "")), put(of(OpenShiftMachineAPI, "m-b", "b", "")), put(of(OpenShiftMachineAPI, "m-c", "", "")))
	assert.Equal(t, 3, l.ControlPlaneSize(), "by the Machines")
	l.Apply(ledgerEpoch, put(of(ClusterAPIV1Beta2, "m-a", "a", "")))
	assert.Equal(t, 3, l.ControlPlaneSize(), "both API families show one Machine")
	l.Apply(ledgerEpoch, put(of(ClusterAPIV1Beta2, "o", "", "other")))
	assert.Equal(t, 3, l.ControlPlaneSize(), "another cluster's")
}

// Two members were lost with their Nodes; their Machines are still there.
func TestQuorumOfTheWholeControlPlane(t *testing.T) {
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(nodePolicy()), put(controlPlaneOf(silentNode("c"))))
	for _, name := range []string{"d", "e"} {
		l.Apply(ledgerEpoch, put(controlPlaneOf(readyNode(name))))
	}
	for _, name := range []string{"c", "d", "e"} {
		l.Apply(ledgerEpoch, member(name))
	}
	require.Equal(t, []string{"c "}, acts(t, l), "three of three")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		l.Apply(ledgerEpoch, put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: name, NodeName: name, ControlPlane: true}))
	}
	require.Empty(t, acts(t, l), "three of five")
	assert.Equal(t, []reason.Code{reason.QuorumLost}, l.Report(ledgerEpoch).Checks[0].Targets[0].Refusals)
}

// A's run has deleted A's Node, and no Machine stands for it: B waits.
func TestTurnOfARunWithoutNode(t *testing.T) {
	l := NewLedger(Rules{ExternalEtcd: true})
	l.Apply(ledgerEpoch, put(nodePolicy()), put(controlPlaneOf(silentNode("a"))), put(controlPlaneOf(silentNode("b"))))
	require.Equal(t, []string{"a "}, acts(t, l), "one at a time, the first by name")
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "a", ControlPlane: true}})
	require.Empty(t, acts(t, l))
	l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: "a"}})
	require.Empty(t, acts(t, l), "a's Node is away")
	l.SetRuns(ledgerEpoch, nil)
	assert.Equal(t, []string{"b "}, acts(t, l))
}

// A deletion of a control-plane Machine, where the administrator allows it, takes
// a member away like a power cycle, and as long as it lasts.
func TestDeletionIsAControlPlaneRemedy(t *testing.T) {
	c := nodePolicy()
	c.Strategy = DeleteMachines
	l := NewLedger(Rules{DeleteControlPlaneMachines: true, Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(c))
	var machines []*Machine
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: name, NodeName: name, ControlPlane: true,
			ControllerOwner: Owner{Kind: "ControlPlaneMachineSet", Name: "cpms", UID: "u"}}
		node := readyNode(name)
		if name < "c" {
			node = silentNode(name)
		}
		machines = append(machines, m)
		l.Apply(ledgerEpoch, put(m), put(controlPlaneOf(node)))
	}
	require.Empty(t, acts(t, l), "no etcd member is seen")
	for _, m := range machines {
		l.Apply(ledgerEpoch, member(m.NodeName))
	}
	require.Equal(t, []string{"a ns/a"}, acts(t, l), "one at a time")
	for _, gone := range []int{0, 3} { // a itself, or one that a person deletes
		deleting := *machines[gone]
		deleting.Deleting = true
		l.Apply(ledgerEpoch, put(&deleting))
		assert.Empty(t, acts(t, l), deleting.Name)
		l.Apply(ledgerEpoch, put(machines[gone]))
	}
	l.Apply(ledgerEpoch, Change{ID: member("e").ID, Err: errors.New("x")})
	assert.Empty(t, acts(t, l), "a member cannot be read")
}
