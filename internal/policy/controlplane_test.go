package policy

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/must"
)

func TestControlPlaneByLabels(t *testing.T) {
	role := "machine.openshift.io/cluster-api-machine-role"
	for _, labels := range []map[string]string{
		{role: "master"}, {role: "control-plane"}, {role: "arbiter"}, {"cluster.x-k8s.io/control-plane": ""}, {"rke.cattle.io/etcd-role": "true"},
	} {
		assert.True(t, ControlPlaneMachine(labels, Owner{}), "%v", labels)
	}
	assert.True(t, ControlPlaneMachine(nil, Owner{Kind: "ControlPlaneMachineSet"}))
	assert.False(t, ControlPlaneMachine(map[string]string{role: "worker", "rke.cattle.io/etcd-role": "false"}, Owner{Kind: "MachineSet"}))
	assert.False(t, ControlPlaneNode(labels.Set{"node-role.kubernetes.io/worker": ""}))
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd",
		"node-role.kubernetes.io/controlplane", "node-role.kubernetes.io/arbiter", "node.kubernetes.io/microk8s-controlplane"} {
		assert.True(t, ControlPlaneNode(labels.Set{label: "true"}), label)
		assert.Contains(t, ControlPlaneLabels, label)
	}
}

// What cannot call the code has the same labels.
func TestControlPlaneLabelsAreTheSameEverywhere(t *testing.T) {
	for _, file := range []string{"configs/kubernetes/protect-nodes.yaml", "configs/policies.d/fencepolicy.yaml", "docs/policy.md"} {
		text := must.Do(os.ReadFile("../../" + file))(t)
		for _, label := range ControlPlaneLabels {
			assert.Contains(t, string(text), label, file)
		}
	}
}

// Only the Pods of the namespaces that no tenant writes into count.
func TestControlPlaneByPods(t *testing.T) {
	for _, row := range []struct {
		namespace, key, value string
		part, member          bool
	}{
		{"kube-system", "component", "etcd", true, true},
		{"kube-system", "component", "kube-apiserver", true, false},
		{"openshift-etcd", "app", "etcd", true, true},
		{"openshift-kube-apiserver", "app", "openshift-kube-apiserver", true, false},
		{"kube-system", "component", "kube-proxy", false, false},
		{"kube-system", "app", "etcd", false, false},
		{"kube-system", "component", "", false, false},
		{"openshift-etcd", "app", "", false, false},
		{"tenant", "component", "etcd", false, false},
		{"tenant", "app", "openshift-kube-apiserver", false, false},
	} {
		part, member := ControlPlanePod(row.namespace, map[string]string{row.key: row.value, "x": "y"})
		assert.Equal(t, []bool{row.part, row.member}, []bool{part, member}, "%v", row)
	}
	part, _ := ControlPlanePod("kube-system", nil)
	assert.False(t, part)
}

// A Node is of the control plane as long as a Pod shows it, whichever of the two is seen first, and for good
// if its labels do.
func TestRoleFollowsThePods(t *testing.T) {
	apiServer := put(&Pod{"kube-system", "api", "a", false, true})
	gone := func(c Change) Change { return Change{ID: c.ID} }
	l := NewLedger(Rules{})
	role := func() []bool {
		r := l.Report(ledgerEpoch).Checks[0].Targets
		return []bool{r[0].ControlPlane, r[1].ControlPlane}
	}
	b := controlPlaneOf(silentNode("b"))
	b.Labels = LabelsOf(map[string]string{labelEtcd: ""})
	l.Apply(ledgerEpoch, put(nodePolicy()), put(silentNode("a")), apiServer, put(b), member("b"))
	assert.Equal(t, []bool{true, true}, role())
	assert.Equal(t, 1, l.tables.controlPlaneSize(), "to others only the Node that has a label")
	assert.Equal(t, l.Report(ledgerEpoch), Decide(l.Snapshot(), ledgerEpoch))

	l.Apply(ledgerEpoch, member("a"), gone(apiServer), gone(member("b")))
	assert.Equal(t, []bool{true, true}, role(), "another Pod shows the one, its labels show the other")
	l.Apply(ledgerEpoch, put(silentNode("a")))
	assert.Equal(t, []bool{true, true}, role(), "a new version of the Node")
	l.Apply(ledgerEpoch, gone(member("a")))
	assert.Equal(t, []bool{false, true}, role())
	assert.Equal(t, 1, l.tables.controlPlaneSize())

	l.Apply(ledgerEpoch, apiServer, Change{ID: apiServer.ID, Value: &Pod{"kube-system", "api", "", false, true}})
	assert.Equal(t, []bool{false, true}, role(), "it is on no Node")
}

// An API server is no member of etcd: neither for the quorum nor in its place.
func TestAPIServersAreNoMembers(t *testing.T) {
	l := ledgerWith(Rules{}, put(nodePolicy()))
	for _, name := range []string{"a", "b", "c"} {
		node := readyNode(name)
		if name == "a" {
			node = silentNode(name)
		}
		l.Apply(ledgerEpoch, put(node), put(&Pod{"kube-system", name, name, false, true}))
	}
	assert.Empty(t, acts(t, l), "no member is seen")
	l.Apply(ledgerEpoch, member("b"))
	assert.Empty(t, acts(t, l), "one member of three is")
	l.Apply(ledgerEpoch, member("c"))
	assert.Equal(t, []string{"a "}, acts(t, l))
}

// Where the cluster labels the Nodes with a member, servers without the label have none. One label that somebody
// sets elsewhere changes nothing. // I12
func TestServersWithoutAMember(t *testing.T) {
	server := func(name string, labels ...string) *Node {
		n := readyNode(name)
		own := map[string]string{}
		for _, l := range labels {
			own[l] = "true"
		}
		n.Labels = LabelsOf(own)
		return controlPlaneOf(n)
	}
	l := NewLedger(Rules{})
	for _, name := range []string{"e-1", "e-2", "e-3"} {
		l.Apply(ledgerEpoch, put(server(name, labelEtcd)), member(name))
	}
	l.Apply(ledgerEpoch, put(server("s-1", "node-role.kubernetes.io/control-plane")), put(server("s-2", "node-role.kubernetes.io/control-plane")))
	assert.Equal(t, 3, l.tables.controlPlaneSize())
	l.Apply(ledgerEpoch, put(server("x", labelArbiter)))
	assert.Equal(t, 4, l.tables.controlPlaneSize(), "an arbiter has one")
	l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: "x"}})

	run := func(node string, labels map[string]string) {
		l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: node, ControlPlane: true, NodeLabels: labels}})
	}
	l.Apply(ledgerEpoch, put(server("e-3")), Change{ID: member("e-3").ID})
	run("e-3", map[string]string{labelEtcd: "true"})
	assert.Equal(t, 3, l.tables.controlPlaneSize(), "it has registered anew, and has no labels yet")
	run("e-3", nil)
	assert.Equal(t, 3, l.tables.controlPlaneSize(), "nobody knows which it had")
	run("s-1", map[string]string{})
	assert.Equal(t, 2, l.tables.controlPlaneSize())
	l.SetRuns(ledgerEpoch, nil)

	l.Apply(ledgerEpoch, put(server("e-3")), member("e-3"))
	assert.Equal(t, 2, l.tables.controlPlaneSize(), "a kubelet may have made that Pod")
	l.Apply(ledgerEpoch, put(server("e-3", "node-role.kubernetes.io/control-plane")))
	assert.Equal(t, 5, l.tables.controlPlaneSize(), "a member is on a Node without the label")
	l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: "e-3"}})
	assert.Equal(t, 4, l.tables.controlPlaneSize(), "or on one that is gone")
}

func controlPlaneOf(node *Node) *Node {
	node.ControlPlane = true
	return node
}

func readyNode(name string) *Node {
	return &Node{Name: name, UID: name, Conditions: ConditionsOf([]Condition{{Type: "Ready", Status: "True"}})}
}

func member(name string) Change {
	return put(&Pod{"openshift-etcd", "etcd-" + name, name, true, true})
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
	require.Zero(t, l.tables.controlPlaneSize())
	l.Apply(ledgerEpoch, put(controlPlaneOf(readyNode("a"))), put(readyNode("worker")))
	assert.Equal(t, 1, l.tables.controlPlaneSize(), "by the Node's role")
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "b", ControlPlane: true}, {ID: "s", Node: "gone"}})
	assert.Equal(t, 2, l.tables.controlPlaneSize(), "our run has taken b's Node away")
	l.Apply(ledgerEpoch, put(of(OpenShiftMachineAPI, "m-a", "a", "")), put(of(OpenShiftMachineAPI, "m-b", "b", "")), put(of(OpenShiftMachineAPI, "m-c", "", "")))
	assert.Equal(t, 3, l.tables.controlPlaneSize(), "by the Machines")
	l.Apply(ledgerEpoch, put(of(ClusterAPIV1Beta2, "m-a", "a", "")))
	assert.Equal(t, 3, l.tables.controlPlaneSize(), "both API families show one Machine")
	l.Apply(ledgerEpoch, put(of(ClusterAPIV1Beta2, "o", "", "other")))
	assert.Equal(t, 3, l.tables.controlPlaneSize(), "another cluster's")
}

// Two members were lost with their Nodes; their Machines are still there.
func TestQuorumOfTheWholeControlPlane(t *testing.T) {
	l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(nodePolicy()), put(controlPlaneOf(silentNode("c"))))
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
	l := ledgerWith(Rules{ExternalEtcd: true}, put(nodePolicy()), put(controlPlaneOf(silentNode("a"))), put(controlPlaneOf(silentNode("b"))))
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
	l := ledgerWith(Rules{DeleteControlPlaneMachines: true, Namespaces: []string{"ns"}}, put(c))
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

// servers are Nodes of the control plane with a label that no kubelet can set, and a member of etcd each; the first is silent.
func servers(names ...string) (list []Change) {
	for i, name := range names {
		n := readyNode(name)
		if i == 0 {
			n = silentNode(name)
		}
		n.Labels = LabelsOf(map[string]string{"node-role.kubernetes.io/control-plane": ""})
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
	micro.Labels = LabelsOf(map[string]string{labelMicroK8s: ""})
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
	s.Labels = LabelsOf(labels)
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
