package policy

import (
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/reason"
)

// Doubt is why it is unclear which Machine a Node belongs to; the zero value is
// no doubt. An action in spite of it may hit another host than the unhealthy one,
// or a host whose owner was not asked. // I4
type Doubt struct {
	Reason  reason.Code
	Message string
}

// machineOf returns the Machine of a Node. If several Machines name the Node, the
// Node's providerID decides. A nil Machine with a zero Doubt means that the Node
// has none.
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

// doubt returns why a Machine's reference to its Node is in doubt: another
// Machine names the same Node, and no providerID decides between them.
func (w *tables) doubt(m *Machine) Doubt {
	list := w.byNode[m.NodeName]
	if m.NodeName == "" || len(list) < 2 {
		return Doubt{}
	}
	n := w.nodes[m.NodeName]
	isProven := n != nil && sameProvider(m.ProviderID, n.ProviderID)
	for _, o := range list {
		same := sameProvider(o.ProviderID, m.ProviderID)
		switch {
		case o.id() == m.id(), same && o.Group() != m.Group(): // one Machine may exist in both API families
		case same || !isProven:
			return disputed(m.NodeName, m, o)
		}
	}
	return Doubt{}
}

func disputed(node string, a, b *Machine) Doubt {
	return Doubt{reason.NodeMismatch, fmt.Sprintf("Machines %s and %s both name Node %s, and no providerID shows which of them it belongs to", a.Key(), b.Key(), node)}
}

// mismatch reports that the Node with the name that the Machine gives belongs to
// another host or another cluster. A Node that registered again has another UID
// than its Machine records, so only the providerIDs count.
func mismatch(m *Machine, n *Node) Doubt {
	if m == nil || n == nil || m.ProviderID == "" || n.ProviderID == "" || sameProvider(m.ProviderID, n.ProviderID) {
		return Doubt{}
	}
	return Doubt{reason.NodeMismatch, fmt.Sprintf("Node %s has the providerID %s, its Machine %s has %s", n.Name, n.ProviderID, m.Key(), m.ProviderID)}
}

// sameProvider reports whether two providerIDs name the same host. Older versions
// of OpenShift's provider wrote them without the BareMetalHost's UID.
func sameProvider(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	return a == b || strings.HasPrefix(a, openShiftScheme) && (strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/"))
}

// Doubt returns why it is in doubt that the Machine belongs to the Node, or, if m
// is nil, that the Node has no Machine.
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
