package policy

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/law"
)

// TestLawsDoubtfulIsLeftAlone: what the engine is told before it drafts a run is
// what the checks have gone by.
func TestLawsDoubtfulIsLeftAlone(t *testing.T) {
	found := map[reason.Code]bool{}
	law.CheckTested(t, func() bool { return found[reason.NodeMismatch] && found[reason.Undecodable] }, func(t *rapid.T) {
		rules := Rules{NodesCountAsMembers: true, TrustNames: true}
		w := &trial{model: newModel(rules), l: NewLedger(rules), now: ledgerEpoch}
		w.populate(t)
		w.apply(drawActing(t)...)
		w.apply(drawMismatch(t)...)
		if odds(t, "unread", 2) {
			w.apply(Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: "a", Name: of(t, "unread", worldMachines...)}, Err: errors.New("it is broken")})
		}
		for _, c := range w.l.Report(w.now).Checks {
			for _, x := range c.Targets {
				namespace, name := splitKey(x.Machine)
				d := w.l.Doubt(w.l.MachineIn(x.MachineAPIVersion, namespace, name), w.l.Node(x.Node))
				if d != (Doubt{}) {
					require.Equal(t, None, x.Action, "%+v: %+v", d, x)
					found[x.Reason] = true
				} else if !w.l.Check(c.ID()).SelectsNodes { // which API family's Machine a Node is of is not known, either
					require.NotEqual(t, reason.NodeMismatch, x.Reason, "%+v", x)
				}
			}
		}
	})
}

// drawMismatch draws, every other time, a Machine whose Node is another host's, and a
// check of all Machines.
func drawMismatch(t *rapid.T) []Change {
	if !rapid.Bool().Draw(t, "mismatch") {
		return nil
	}
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "a", Name: "m-0", NodeName: "n-0", ProviderID: "p://1", Phase: "Running"}
	n := &Node{Name: m.NodeName, ProviderID: "p://2", Conditions: []Condition{{"Ready", "Unknown", ledgerEpoch.Add(-time.Hour)}}}
	c := &Check{APIVersion: OpenShiftMachineAPI, Kind: MachineHealthCheckKind, Namespace: m.Namespace, Name: "all", Source: "cluster",
		Selector: labels.Everything(), Strategy: PowerCycleHosts, Conditions: []UnhealthyCondition{{"Ready", "Unknown", time.Minute}}}
	return []Change{
		{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, Value: n}, {ID: ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, Value: m},
		{ID: ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}, Value: c},
	}
}

// TestLawsOneMoreDoubt: another Machine that claims a Node, or one that cannot be
// read, lets nobody act on what was left alone before.
func TestLawsOneMoreDoubt(t *testing.T) {
	acted := false
	law.CheckTested(t, func() bool { return acted }, func(t *rapid.T) {
		m := newModel(Rules{NodesCountAsMembers: true, TrustNames: true})
		for _, c := range append(drawCluster(t, ledgerEpoch), drawActing(t)...) {
			m.apply(c)
		}
		s := m.snapshot()
		before, isDoubt := Decide(s, ledgerEpoch), true
		if odds(t, "unread", 2) {
			s.Undecoded = append(s.Undecoded, ObjectKey{Kind: of(t, "kind", "", "Machine"), Namespace: "a", Name: "unread"})
		} else if at := slices.IndexFunc(s.Machines, func(m Machine) bool { return m.NodeName != "" }); at >= 0 {
			s.Machines = append(s.Machines, Machine{APIVersion: of(t, "another's API", OpenShiftMachineAPI, ClusterAPIV1Beta2), Namespace: of(t, "another's namespace", "0", "a", "z"), Name: "another",
				NodeName: s.Machines[at].NodeName, ProviderID: of(t, "another", "", "p://another", s.Machines[at].ProviderID)})
			x := tablesOf(&s).machineSubject(&s.Machines[len(s.Machines)-1])
			isDoubt = x.doubt() != Doubt{}
		}
		after := Decide(s, ledgerEpoch)
		if !isDoubt && (opened(before, after) || settled(s.Machines)) {
			return // the only Machine of a Node, or a copy in the other API: one more target of a limit
		}
		require.Empty(t, newlyActing(before, after))
		acted = acted || before.Acts()
	})
}

// opened reports whether the limit of a check of before opened.
func opened(before, after Report) bool {
	return slices.ContainsFunc(after.Checks, func(a CheckReport) bool {
		return a.Allowed && slices.ContainsFunc(before.Checks, func(b CheckReport) bool { return b.ID() == a.ID() && !b.Allowed })
	})
}

// settled reports whether a Machine yields to the last one: that shows whose the Node is.
func settled(list []Machine) bool {
	last := &list[len(list)-1]
	return slices.ContainsFunc(list, func(m Machine) bool { return m.NodeName == last.NodeName && m.yieldsTo(last) })
}
