package policy

import (
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/reason"
)

// Doubt is why nobody can say which Machine a Node belongs to; the zero value is
// none. Whoever acts in spite of it may hit another host than the one that is ill,
// or one whose owner was never asked. // I4
type Doubt struct {
	Reason  reason.Code
	Message string
}

// machineOf is the Machine of a Node: of several that claim it the one that the
// Node's providerID names. Nil without a doubt: it has none.
func (w *tables) machineOf(n *Node) (*Machine, Doubt) {
	list := w.byNode[n.Name]
	switch {
	case len(list) == 0 && w.unreadMachines > 0:
		return nil, Doubt{reason.Undecodable, "a Machine could not be decoded, and it may be this Node's"}
	case len(list) == 0:
		return nil, Doubt{}
	case len(list) == 1:
		return list[0], mismatch(list[0], n)
	}
	var own *Machine
	for _, m := range list {
		switch {
		case !sameProvider(m.ProviderID, n.ProviderID):
		case own != nil:
			return list[0], disputed(n.Name, own, m)
		default:
			own = m
		}
	}
	if own == nil {
		return list[0], disputed(n.Name, list[0], list[1])
	}
	return own, Doubt{}
}

// doubt is why a Machine's claim to its Node cannot be believed: another Machine
// has the same, and no providerID settles it.
func (w *tables) doubt(m *Machine) Doubt {
	list := w.byNode[m.NodeName]
	if m.NodeName == "" || len(list) < 2 {
		return Doubt{}
	}
	n := w.nodes[m.NodeName]
	proven := n != nil && sameProvider(m.ProviderID, n.ProviderID)
	for _, o := range list {
		same := sameProvider(o.ProviderID, m.ProviderID)
		switch {
		case o.id() == m.id(), same && o.Group() != m.Group(): // both lineages may show one Machine
		case same || !proven:
			return disputed(m.NodeName, m, o)
		}
	}
	return Doubt{}
}

func disputed(node string, a, b *Machine) Doubt {
	return Doubt{reason.NodeMismatch, fmt.Sprintf("Machines %s and %s both name Node %s, and no providerID tells whose it is", a.Key(), b.Key(), node)}
}

// mismatch: a Node of another host, or of another cluster, has the name that the
// Machine gives. A Node that registered anew has another UID than its Machine
// remembers, so only the providerIDs decide.
func mismatch(m *Machine, n *Node) Doubt {
	if m == nil || n == nil || m.ProviderID == "" || n.ProviderID == "" || sameProvider(m.ProviderID, n.ProviderID) {
		return Doubt{}
	}
	return Doubt{reason.NodeMismatch, fmt.Sprintf("Node %s has the providerID %s, its Machine %s has %s", n.Name, n.ProviderID, m.Key(), m.ProviderID)}
}

// sameProvider says whether two providerIDs name one host. OpenShift's provider
// once wrote them without the BareMetalHost's UID.
func sameProvider(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	return a == b || strings.HasPrefix(a, openShiftScheme) && (strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/"))
}

// Doubt is why it cannot be said that the Machine is the Node's, or that a Node
// has none when m is nil.
func (l *Ledger) Doubt(m *Machine, n *Node) Doubt {
	switch {
	case m == nil && n == nil && l.w.unreadMachines > 0:
		return Doubt{reason.Undecodable, "a Machine could not be decoded, and it may be the target's"}
	case m == nil && n == nil:
		return Doubt{}
	case m == nil:
		_, d := l.w.machineOf(n)
		return d
	}
	if d := mismatch(m, n); d != (Doubt{}) {
		return d
	}
	return l.w.doubt(m)
}
