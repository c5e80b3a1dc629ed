package policy

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

// The cases of this file are rare in the random trials, and each was once missed
// by a ledger that had been broken on purpose.

func caseChange(v any) Change {
	switch v := v.(type) {
	case *Node:
		return Change{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: v.Name}, Value: v}
	case *Machine:
		return Change{ID: ObjectID{APIVersion: v.APIVersion, Kind: "Machine", Namespace: v.Namespace, Name: v.Name}, Value: v}
	case *Check:
		return Change{ID: ObjectID{APIVersion: v.APIVersion, Kind: v.Kind, Namespace: v.Namespace, Name: v.Name}, Value: v}
	case *Request:
		return Change{ID: ObjectID{APIVersion: v.APIVersion, Kind: v.Kind, Namespace: v.Namespace, Name: v.Name}, Value: v}
	}
	return Change{ID: ObjectID{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "kube-node-lease", Name: "n-0"}, Value: v}
}

func caseCheck(strategy Strategy) *Check {
	return &Check{Kind: MachineHealthCheckKind, APIVersion: OpenShiftMachineAPI, Namespace: "a", Name: "c", Source: "cluster",
		Selector: labels.Everything(), Strategy: strategy, Template: &worldTemplate, StartupTimeout: 10 * time.Minute,
		Conditions: []UnhealthyCondition{{"Slow", "True", 10 * time.Minute}, {"Ready", "Unknown", time.Minute}}}
}

func caseMachine(name, node string) *Machine {
	return &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "a", Name: name, NodeName: node, ControllerOwner: Owner{Kind: "MachineSet"}}
}

// caseNode has each condition for so long.
func caseNode(name string, kind string, ago time.Duration, more ...Condition) *Node {
	status := map[string]string{"Ready": "Unknown"}[kind]
	if status == "" {
		status = "True"
	}
	return &Node{Name: name, UID: "u", Conditions: append([]Condition{{kind, status, ledgerEpoch.Add(-ago)}}, more...)}
}

func caseNodeCheck() *Check {
	c := caseCheck(CreateRequests)
	c.APIVersion, c.Kind, c.Namespace, c.SelectsNodes = Medik8sAPI, NodeHealthCheckKind, "", true
	c.MinHealthy = new(intstr.FromInt32(0))
	return c
}

func TestLedgerCases(t *testing.T) {
	request := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: "a", Name: "m-0"}
	nodeRequest := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: "a", Name: "x", NodeName: "n-0"}
	failed, orphan, sick, other := caseMachine("m-0", ""), caseMachine("m-0", "n-0"), caseNode("n-0", "Ready", time.Hour), caseNode("n-0", "Other", 0)
	failed.Phase = "Failed"
	orphan.ControllerOwner = Owner{}
	renewed := *other
	renewed.UID = "u2"
	slow := Condition{"Slow", "True", ledgerEpoch.Add(-9 * time.Minute)}
	capi := caseCheck(MarkOwners)
	capi.APIVersion, capi.ClusterName = ClusterAPIV1Beta2, "k"
	gone := func(v any) Change { return Change{ID: caseChange(v).ID} }
	for name, events := range map[string][]Change{
		"a request for a Machine":       {caseChange(caseCheck(CreateRequests)), caseChange(failed), caseChange(request), gone(request)},
		"a request for a Node":          {caseChange(caseNodeCheck()), caseChange(sick), caseChange(nodeRequest), gone(nodeRequest)},
		"a wait without a clock":        {caseChange(caseCheck(DeleteMachines)), caseChange(caseMachine("m-0", "")), caseChange(caseMachine("m-1", "")), caseChange(caseMachine("m-0", "n-0")), caseChange(caseMachine("m-1", "n-1"))},
		"the Cluster cannot be decoded": {caseChange(capi), {ID: ObjectID{APIVersion: ClusterAPIV1Beta2, Kind: "Cluster", Namespace: "a", Name: "k"}, Err: errors.New("broken")}, {ID: ObjectID{APIVersion: ClusterAPIV1Beta2, Kind: "Cluster", Namespace: "a", Name: "k"}}},
		"only a refusal":                {caseChange(caseCheck(DeleteMachines)), caseChange(sick), caseChange(caseMachine("m-0", "n-0")), caseChange(orphan)},
		"only a due": {caseChange(caseCheck(PowerCycleHosts)), caseChange(sick), caseChange(caseMachine("m-0", "n-0")),
			caseChange(&Lease{RenewTime: ledgerEpoch.Add(-30 * time.Second)}), caseChange(&Lease{RenewTime: ledgerEpoch.Add(-20 * time.Second)})},
		"only a UID": {caseChange(caseNodeCheck()), caseChange(other), caseChange(&renewed)},
		"a reason that changes before anything is due": {caseChange(caseNodeCheck()), caseChange(caseNode("n-0", "Ready", time.Hour, slow)),
			caseChange(caseNode("n-1", "Slow", 0)), caseChange(caseNode("n-2", "Slow", 5*time.Minute)), caseChange(caseNode("n-3", "Slow", time.Minute))},
		"the same the other way round": {caseChange(caseNodeCheck()), caseChange(caseNode("n-0", "Ready", time.Hour, slow)),
			caseChange(caseNode("n-2", "Slow", 5*time.Minute)), caseChange(caseNode("n-1", "Slow", 0)), caseChange(caseNode("n-3", "Slow", time.Minute))},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTrial(Rules{})
			for _, c := range events {
				before := w.l.Version()
				w.apply(c)
				require.Greater(t, w.l.Version(), before)
				w.compare(t)
			}
		})
	}
}

// TestLedgerStormEnds: the end of a cooldown is an instant like any other.
func TestLedgerStormEnds(t *testing.T) {
	c := caseNodeCheck()
	c.MinHealthy, c.StormCooldown, c.Storm = new(intstr.FromString("0%")), 5*time.Minute, Storm{Active: true, CooldownSince: ledgerEpoch}
	w := newTrial(Rules{})
	w.apply(caseChange(c), caseChange(caseNode("n-0", "Ready", time.Hour)))
	w.compare(t)
	next, ok := w.l.Next()
	require.True(t, ok)
	require.Equal(t, ledgerEpoch.Add(5*time.Minute), next)
	require.Equal(t, []reason.Code{reason.StormCooldown, reason.Delegated}, w.l.Acting(next.Add(-1))[0].Targets[0].Refusals)
	before := w.l.Version()
	w.now = next
	w.l.Advance(next)
	require.Greater(t, w.l.Version(), before)
	require.Equal(t, []reason.Code{reason.Delegated}, w.l.Acting(next)[0].Targets[0].Refusals)
}
