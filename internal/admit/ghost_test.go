package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
