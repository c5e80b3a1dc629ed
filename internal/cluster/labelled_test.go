package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Labels find the Nodes that have all of them, with those that a run or another remediator has deleted. What has no Node is
// listed apart: nobody knows its labels.
func TestNodesWithLabels(t *testing.T) {
	a := newAsking(manyLimits())
	with := func(labels map[string]string) func(*policy.Node) {
		return func(n *policy.Node) { n.Labels = labels }
	}
	r7 := map[string]string{"rack": "r7", "pool": "storage"}
	a.node("there", "True", with(r7))
	a.node("other-pool", "True", with(map[string]string{"rack": "r7"}))
	a.node("elsewhere", "True", with(map[string]string{"rack": "r8", "pool": "storage"}))
	a.node("bare", "True")
	a.node("moved", "True", with(map[string]string{"rack": "r8"}))
	open := func(id, node string, labels map[string]string, ended bool) {
		r := remediate.Run{ID: id, Step: remediate.PowerOn, Target: remediate.Target{Cluster: "c", Node: node, Namespace: "ns", Machine: "m-" + id}, NodeLabels: labels}
		if ended {
			r.Step = remediate.Done
		}
		a.b.Runs.Put(r)
	}
	open("run-1", "deleted", r7, false)
	open("run-2", "ended", r7, true)
	open("run-3", "moved", r7, false) // what the Node has now counts
	open("run-4", "", nil, false)     // its Machine never joined
	open("run-5", "unknown", nil, false)
	a.b.Runs.PutRepair(Repair{ID: "asked", By: "someone", Target: remediate.Target{Cluster: "c", Node: "replaced"}, NodeLabels: r7})
	a.machine("there", "m-1") // has its Node
	a.machine("waiting", "m-2")

	for node, labels := range map[string]map[string]string{"anew": {"os": "linux"}, "anew-elsewhere": {"rack": "r8"}} { // a kubelet has registered it
		a.node(node, "True", with(labels), func(n *policy.Node) { n.UID = "new" })
		a.b.Runs.Put(remediate.Run{ID: "run-" + node, Step: remediate.RestoreNode, Isolated: time.Now(), NodeLabels: r7,
			Target: remediate.Target{Cluster: "c", Node: node, NodeUID: "old"}})
	}

	places := a.b.Places("rack")
	for node, want := range map[string]Place{"there": {Rack: "r7"}, "bare": {}, "deleted": {Rack: "r7"}, "moved": {Rack: "r8"}, "anew": {Rack: "r7"}, "ended": {}} {
		assert.Equal(t, want, places[node], node)
	}

	found := a.b.WithLabels(r7)
	assert.Equal(t, []string{"anew", "deleted", "replaced", "there"}, found.Nodes)
	assert.Equal(t, map[string]string{"anew": "run-anew", "deleted": "run-1"}, found.Runs)
	assert.Equal(t, []string{"ns/m-run-4", "ns/waiting", "unknown"}, found.Unlabelled)
	assert.Empty(t, found.Values)

	found = a.b.WithLabels(map[string]string{"rack": "r9"})
	assert.Empty(t, found.Nodes)
	assert.Equal(t, []string{"r7", "r8"}, found.Values)
	assert.Empty(t, a.b.WithLabels(map[string]string{"rack": "r9", "pool": "storage"}).Values, "of which label?")
}
