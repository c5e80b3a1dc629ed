package policy

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

// TestLawsDoubtfulIsLeftAlone: what the engine is told before it drafts a run is
// what the checks have gone by.
func TestLawsDoubtfulIsLeftAlone(t *testing.T) {
	found := map[Reason]bool{}
	law.Check(t, func() bool { return found[NodeMismatch] && found[Undecodable] }, func(t *rapid.T) {
		rules := Rules{NodesStandIn: true}
		w := &trial{model: newModel(rules), l: NewLedger(rules), now: ledgerEpoch}
		w.populate(t)
		if odds(t, "unread", 2) {
			w.apply(Change{ID: ObjectID{OpenShiftMachineAPI, "Machine", "a", of(t, "unread", worldMachines...)}, Err: errors.New("it is broken")})
		}
		for _, c := range w.l.Report(w.now).Checks {
			for _, x := range c.Targets {
				namespace, name := splitKey(x.Machine)
				d := w.l.Doubt(w.l.MachineIn(x.MachineAPIVersion, namespace, name), w.l.Node(x.Node))
				if d != (Doubt{}) {
					require.Equal(t, None, x.Action, "%+v: %+v", d, x)
					found[x.Reason] = true
				} else if !w.l.Check(c.ID()).SelectsNodes { // which lineage's Machine a Node is of is not known, either
					require.NotEqual(t, NodeMismatch, x.Reason, "%+v", x)
				}
			}
		}
	})
}

// TestLawsOneMoreDoubt: another Machine that claims a Node, or one that cannot be
// read, lets nobody act on what was left alone before.
func TestLawsOneMoreDoubt(t *testing.T) {
	acted := false
	law.Check(t, func() bool { return acted }, func(t *rapid.T) {
		m := newModel(Rules{NodesStandIn: true})
		for _, c := range drawCluster(t, ledgerEpoch) {
			m.apply(c)
		}
		s := m.snapshot()
		before := Decide(s, ledgerEpoch)
		if odds(t, "unread", 2) {
			s.Undecoded = append(s.Undecoded, ObjectKey{Kind: of(t, "kind", "", "Machine"), Namespace: "a", Name: "unread"})
		} else if at := slices.IndexFunc(s.Machines, func(m Machine) bool { return m.NodeName != "" }); at >= 0 {
			s.Machines = append(s.Machines, Machine{APIVersion: OpenShiftMachineAPI, Namespace: "z", Name: "another",
				NodeName: s.Machines[at].NodeName, ProviderID: of(t, "another", "", "p://another")})
		}
		after := Decide(s, ledgerEpoch)
		require.Empty(t, newlyActing(before, after))
		acted = acted || before.Acts()
	})
}
