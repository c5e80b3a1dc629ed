package policy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLawsDoubtfulIsLeftAlone: what the engine is told before it drafts a run is
// what the checks have gone by.
func TestLawsDoubtfulIsLeftAlone(t *testing.T) {
	found := map[Reason]bool{}
	rapid.Check(t, func(t *rapid.T) {
		w := &trial{model: newModel(Rules{NodesStandIn: true}), l: NewLedger(Rules{NodesStandIn: true}), now: ledgerEpoch}
		w.populate(t)
		w.changes(t)
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
	assert.True(t, found[NodeMismatch] && found[Undecodable], "the law was never put to the test")
}

// TestLawsOneMoreDoubt: another Machine that claims a Node, or one that cannot be
// read, lets nobody act on what was left alone before.
func TestLawsOneMoreDoubt(t *testing.T) {
	fewer := false
	rapid.Check(t, func(t *rapid.T) {
		s := drawWorld(t)
		before := Decide(s, ledgerEpoch)
		if odds(t, "unread", 2) {
			s.Undecoded = append(s.Undecoded, ObjectKey{Kind: of(t, "kind", "", "Machine"), Namespace: "a", Name: "unread"})
		} else if at := slices.IndexFunc(s.Machines, func(m Machine) bool { return m.NodeName != "" }); at >= 0 {
			s.Machines = append(s.Machines, Machine{APIVersion: OpenShiftMachineAPI, Namespace: "z", Name: "another",
				NodeName: s.Machines[at].NodeName, ProviderID: of(t, "another", "", "p://another")})
		}
		after := Decide(s, ledgerEpoch)
		require.Empty(t, newlyActing(before, after))
		fewer = fewer || len(newlyActing(after, before)) > 0
	})
	require.True(t, fewer, "the law was never put to the test")
}
