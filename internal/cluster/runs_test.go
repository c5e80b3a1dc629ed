package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// The Node that only a Machine names, whose deletion is open, closes no limit of the checks of Nodes. // I11
func TestNodeThatNeverWasIsNotCounted(t *testing.T) {
	ghost := remediate.Run{ID: "r1", Strategy: remediate.DeleteMachine, Step: remediate.PowerOff, Started: time.Now(),
		Target: remediate.Target{Namespace: "tenant", Machine: "m", MachineUID: "u", MachineAPI: policy.OpenShiftMachineAPI, Node: "ghost"}}
	assert.True(t, ghost.Open())
	assert.Equal(t, policy.OpenRun{ID: "r1", Machine: "tenant/m", MachineAPI: policy.OpenShiftMachineAPI}, openTarget(&ghost))
	for name, change := range map[string]func(*remediate.Run){
		"the Node was there":                func(r *remediate.Run) { r.Target.NodeUID = "n" },
		"a run had deleted it":              func(r *remediate.Run) { r.NodeLabels = map[string]string{"a": "b"} },
		"its host is switched off":          func(r *remediate.Run) { r.Strategy = remediate.PowerCycle },
		"the quorum depends on it":          func(r *remediate.Run) { r.ControlPlane = true },
		"without a Machine nobody names it": func(r *remediate.Run) { r.Target.Machine = "" },
	} {
		r := ghost
		change(&r)
		assert.Equal(t, "ghost", openTarget(&r).Node, name)
	}
}

// Nor does the one of a Machine that another remediator was asked to repair. // I11
func TestNodeThatNeverWasIsNotCountedWhenHandedOver(t *testing.T) {
	ghost := func(id string) escalate.Record {
		return escalate.Record{ID: id, Objects: []escalate.Object{{Kind: "Reboot", Name: id}},
			Target: remediate.Target{Cluster: "c", Namespace: "tenant", Machine: id, MachineUID: "u", MachineAPI: policy.OpenShiftMachineAPI, Node: "ghost-" + id}}
	}
	a := newAsking(manyLimits())
	a.check.MaxUnhealthy = new(intstr.FromInt32(1))
	a.put()
	a.node("n", "Unknown")
	a.b.Begin([]escalate.Record{ghost("1"), ghost("2"), ghost("3")})
	assert.Equal(t, policy.OpenRun{ID: "of the remediator of Reboot /1 of record 1", Machine: "tenant/1", MachineAPI: policy.OpenShiftMachineAPI}, a.b.runs.openTargets()[0])
	a.candidate(t, "n")
	counted := a.b.ledger.Counters()
	require.Len(t, counted, 1)
	assert.Equal(t, []any{1, true}, []any{counted[0].Expected, counted[0].Allowed})
	for name, change := range map[string]func(*escalate.Record){
		"the Node was there":                func(r *escalate.Record) { r.Target.NodeUID = "n" },
		"its labels are known":              func(r *escalate.Record) { r.Labels = map[string]string{"a": "b"} },
		"the quorum depends on it":          func(r *escalate.Record) { r.ControlPlane = true },
		"nobody can read the record":        func(r *escalate.Record) { r.Unreadable = "it holds nothing" },
		"without a Machine nobody names it": func(r *escalate.Record) { r.Target.Machine = "" },
	} {
		r := ghost("1")
		change(&r)
		a.b.Begin([]escalate.Record{r})
		assert.Equal(t, "ghost-1", a.b.runs.openTargets()[0].Node, name)
	}
}
