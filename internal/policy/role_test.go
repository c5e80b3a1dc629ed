package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
)

// servers are Nodes of the control plane with a label that no kubelet can set, and a member of etcd each; the first is silent.
func servers(names ...string) (list []Change) {
	for i, name := range names {
		n := readyNode(name)
		if i == 0 {
			n = silentNode(name)
		}
		n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		list = append(list, put(controlPlaneOf(n)), member(name))
	}
	return list
}

// forged are the mirror Pods of a member of etcd and of an API server, as the kubelet of a Node may make them.
func forged(node string, ready bool) []Change {
	return []Change{put(&Pod{"kube-system", "etcd-" + node, node, true, ready}), put(&Pod{"kube-system", "api-" + node, node, false, ready})}
}

// Where labels say which Nodes are of the control plane, a kubelet that makes its own Node one of them makes only that
// one wait. // I12
func TestKubeletTakesNoTurn(t *testing.T) {
	l := ledgerWith(Rules{}, put(nodePolicy()))
	l.Apply(ledgerEpoch, servers("s-1", "s-2", "s-3")...)
	l.Apply(ledgerEpoch, put(silentNode("a-worker")))
	require.Equal(t, []string{"a-worker ", "s-1 "}, acts(t, l))
	l.Apply(ledgerEpoch, forged("a-worker", true)...)
	assert.Equal(t, []string{"s-1 "}, acts(t, l), "the first by name waits for the one that has the label")
	assert.True(t, l.Node("a-worker").ControlPlane, "for itself it is one")
	assert.False(t, l.TakesTurn(l.Node("a-worker"), nil))
	assert.True(t, l.TakesTurn(l.Node("s-1"), nil))

	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "a-worker", ControlPlane: true, TakesNoTurn: true, NodeLabels: map[string]string{}}})
	assert.Equal(t, []string{"s-1 "}, acts(t, l), "nor does its run hold the turn")
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "a-worker"}})
	assert.Equal(t, []string{"s-1 "}, acts(t, l), "nor one that began before the Pods were made")
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "s-1", ControlPlane: true, NodeLabels: map[string]string{"node-role.kubernetes.io/master": ""}}})
	assert.Empty(t, acts(t, l), "it waits for the run of another")

	l.SetRuns(ledgerEpoch, nil)
	micro := silentNode("a-worker")
	micro.Labels = map[string]string{labelMicroK8s: ""}
	for _, c := range forged("a-worker", true) {
		l.Apply(ledgerEpoch, Change{ID: c.ID})
	}
	l.Apply(ledgerEpoch, put(controlPlaneOf(micro)))
	assert.Equal(t, []string{"s-1 "}, acts(t, l), "a label that kubelets may set is no more than such a Pod")
	assert.Equal(t, l.Report(ledgerEpoch), Decide(l.Snapshot(), ledgerEpoch))
}

// Without any label, what kubelets say counts: nothing else shows which hosts are of the control plane. // I12
func TestPodsCountWhereNothingIsLabelled(t *testing.T) {
	l := ledgerWith(Rules{ExternalEtcd: true}, put(nodePolicy()), put(silentNode("a")), put(silentNode("b")))
	l.Apply(ledgerEpoch, forged("a", true)...)
	l.Apply(ledgerEpoch, forged("b", true)...)
	require.Equal(t, []string{"a "}, acts(t, l), "one at a time")
	labels := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	s := readyNode("s")
	s.Labels = labels
	l.Apply(ledgerEpoch, put(controlPlaneOf(s)))
	assert.Equal(t, []string{"a ", "b "}, acts(t, l))
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "s", ControlPlane: true, NodeLabels: labels}})
	l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: "s"}})
	assert.False(t, l.TakesTurn(l.Node("a"), nil), "the only Node with a label is away for its run")
}

// What looks like a member of etcd on a Node that nobody labelled is none to others, in either direction. // I12
func TestForgedMembers(t *testing.T) {
	l := ledgerWith(Rules{}, put(nodePolicy()))
	l.Apply(ledgerEpoch, servers("s-1", "s-2", "s-3")...)
	for _, name := range []string{"w-1", "w-2"} {
		l.Apply(ledgerEpoch, put(readyNode(name)))
	}
	quorum := func() reason.Code { // of what the tables show, and of a fresh read
		var fresh []Member
		for _, p := range l.Snapshot().Pods {
			if n := l.Node(p.Node); p.Member {
				fresh = append(fresh, Member{p.Node, p.Ready && n != nil && n.Ready()})
			}
		}
		code, _ := l.Quorum(fresh, "s-1")
		assert.Equal(t, code == "", len(acts(t, l)) == 1)
		return code
	}
	require.Empty(t, quorum())
	l.Apply(ledgerEpoch, forged("w-1", false)...)
	l.Apply(ledgerEpoch, forged("w-2", false)...)
	assert.Empty(t, quorum(), "two more that are not Ready forbid nothing")

	l.Apply(ledgerEpoch, put(&Pod{"openshift-etcd", "etcd-s-2", "s-2", true, false}))
	require.Equal(t, reason.QuorumLost, quorum())
	l.Apply(ledgerEpoch, forged("w-1", true)...)
	l.Apply(ledgerEpoch, forged("w-2", true)...)
	assert.Equal(t, reason.QuorumLost, quorum(), "two more that are Ready do not stand in for one that is not")

	l.Apply(ledgerEpoch, member("s-2"), Change{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: "w-1"}})
	l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: "w-2"}})
	assert.Equal(t, reason.QuorumLost, quorum(), "nobody knows which labels a Node had that is gone: it counts, and is not healthy")
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "1", Node: "w-1", NodeLabels: map[string]string{}}, {ID: "2", Node: "w-2", NodeLabels: map[string]string{}}})
	assert.Empty(t, quorum(), "fenced knows them of its own runs")

	code, _ := l.Quorum([]Member{{"w-1", true}, {"s-2", true}}, "w-1")
	assert.Equal(t, reason.QuorumLost, code, "to itself it is a member")
}

// A Machine whose namespace no control-plane Node names does not make a kubelet's word one of the administrator. // I12
func TestKubeletWithAForgedMachine(t *testing.T) {
	l := ledgerWith(Rules{}, put(nodePolicy()))
	l.Apply(ledgerEpoch, servers("s-1", "s-2", "s-3")...)
	n := silentNode("a-worker")
	n.OpenShiftMachine = "evil/m"
	l.Apply(ledgerEpoch, put(n), put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "evil", Name: "m", NodeName: "a-worker", ControlPlane: true}))
	l.Apply(ledgerEpoch, forged("a-worker", true)...)
	for _, name := range []string{"x", "y", "z"} {
		l.Apply(ledgerEpoch, put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "evil", Name: name, ControlPlane: true}))
	}
	assert.Equal(t, []string{"s-1 "}, acts(t, l))
	assert.Equal(t, 3, l.tables.controlPlaneSize())
	l = ledgerWith(Rules{Namespaces: []string{"evil"}}, put(nodePolicy()))
	l.Apply(ledgerEpoch, put(n), put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "evil", Name: "m", NodeName: "a-worker", ControlPlane: true}))
	assert.True(t, l.TakesTurn(l.Node("a-worker"), nil), "the administrator named the namespace")
}
