package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

// TestLawsTenantChangesNothing: whatever somebody writes in one namespace where no Node names its
// Machine, and that the administrator did not name, nothing is decided otherwise about others. Two
// rules are left out: the checks of OpenShift of any namespace disable every NodeHealthCheck, as
// medik8s has it; and a FencePolicy counts the Machines that it selects anywhere.
func TestLawsTenantChangesNothing(t *testing.T) {
	acted := false
	law.CheckTested(t, func() bool { return acted }, func(t *rapid.T) {
		m := newModel(Rules{Namespaces: of(t, "namespaces", nil, []string{"a"}), RequestNamespaces: of(t, "requests", nil, []string{"b"}),
			NodesCountAsMembers: true, DeleteControlPlaneMachines: rapid.Bool().Draw(t, "delete")})
		for _, c := range append(drawCluster(t, ledgerEpoch), drawActing(t)...) {
			if k, ok := c.Value.(*Check); !ok || k.family() != fenced || k.SelectsNodes {
				m.apply(c)
			}
		}
		id, budget := drawOf(t, "Budget", ledgerEpoch)
		m.apply(Change{ID: id, Value: budget})
		before := aboutOthers(m)
		for range rapid.IntRange(1, 12).Draw(t, "attacks") {
			m.apply(drawAttack(t))
		}
		require.Equal(t, before, aboutOthers(m))
		acted = acted || strings.Contains(strings.Join(before, "\n"), "[]")
	})
}

// drawAttack draws what somebody may write who has the namespace z.
func drawAttack(t *rapid.T) Change {
	switch of(t, "attack", "Machine", "Machine", "unread", "request", "check") {
	case "Machine":
		m := drawWorldMachine(t, ledgerEpoch)
		m.Namespace = "z"
		return put(m)
	case "unread":
		return Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: "z", Name: of(t, "unread", worldMachines...)}, Err: errors.New("it is broken")}
	case "request":
		q := drawWorldRequest(t, ledgerEpoch)
		q.Namespace = "z"
		if odds(t, "own", 2) {
			q.APIVersion, q.Kind = FencedAPI, FencedRemediationKind
			q.Power = &PowerRequest{HasFinalizer: odds(t, "held", 2), FinalizerElsewhere: odds(t, "elsewhere", 2)}
		}
		return Change{ID: ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: "z", Name: q.Name}, Value: q}
	}
	c := drawWorldCheck(t, ledgerEpoch)
	c.APIVersion, c.Kind, c.Namespace, c.Source, c.ClusterName, c.SelectsNodes = ClusterAPIV1Beta2, MachineHealthCheckKind, "z", "cluster", "k", false
	c.Strategy = of(t, "does", MarkOwners, PowerCycleHosts, DeleteMachines, CountOnly)
	c.Template, c.Escalation = nil, nil
	return put(c)
}

// aboutOthers lists what is decided about the objects of others: the results of their checks, budgets, and requests.
func aboutOthers(m *model) (list []string) {
	l := NewLedger(m.rules)
	for id, v := range m.objects {
		l.Apply(ledgerEpoch, Change{ID: id, Value: v})
	}
	for id, q := range m.requests {
		l.Apply(ledgerEpoch, Change{ID: id, Value: q})
	}
	s := m.snapshot()
	for _, k := range s.Undecoded {
		l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}, Err: errors.New("x")})
	}
	r := Decide(s, ledgerEpoch)
	for _, c := range r.Checks {
		if c.Namespace == "z" {
			continue
		}
		list = append(list, fmt.Sprintln(c.ID(), c.State, c.Message, c.Allowed))
		for _, x := range c.Targets {
			list = append(list, fmt.Sprintln(c.ID(), x.Machine, x.Node, x.Verdict, x.Reason, x.Message, x.Action, x.Refusals))
		}
	}
	for _, b := range r.Budgets {
		list = append(list, fmt.Sprintln(b))
	}
	for _, q := range l.Requested(true, ledgerEpoch) {
		if q.Request.Namespace != "z" {
			list = append(list, fmt.Sprintln(q.Request.Kind, q.Request.key(), q.Target.Machine, q.Target.Node, q.Target.Message, q.Target.Refusals))
		}
	}
	return list
}
