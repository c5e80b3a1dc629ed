package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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

// of lists the Machines that own a Node, sorted, without those that yield to another one. n is
// nil if it does not exist.
func (o owners) of(node string, n *Node) (list []*Machine) {
	for _, m := range o.byNode[node] {
		if o.owns(m, n) {
			list = append(list, m)
		}
	}
	yields := func(m *Machine) bool { return slices.ContainsFunc(list, m.yieldsTo) }
	if slices.ContainsFunc(list, yields) {
		list = slices.DeleteFunc(slices.Clone(list), yields)
	}
	return list
}

// machineOf returns the Machine of a Node. If several Machines own the Node, the
// Node's providerID decides. A nil Machine with a zero Doubt means that the Node
// has none.
func (o owners) machineOf(n *Node) (*Machine, Doubt) {
	list := o.of(n.Name, n)
	switch len(list) {
	case 0:
		return nil, o.unreadMachineOf(n)
	case 1:
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

// unreadMachineOf returns the doubt about a Node without a Machine: one that could not be
// decoded may be its. n is nil if nothing is known of the Node.
func (o owners) unreadMachineOf(n *Node) Doubt {
	found, whose := ObjectKey{}, "this Node's"
	if n == nil {
		whose = "the target's"
	}
	switch {
	case len(o.unread) > 0:
		found = slices.MinFunc(slices.Collect(maps.Keys(o.unread)), byKey)
	case n == nil:
		return Doubt{}
	default:
		for _, k := range n.namedKeys() {
			if o.undecoded[k] > 0 {
				found = k
			}
		}
		if found == (ObjectKey{}) {
			return Doubt{}
		}
	}
	return Doubt{reason.Undecodable, found.text() + " could not be decoded, and it may be " + whose}
}

// namedKeys are the keys of the Machines that the Node names, if these could not be decoded.
func (n *Node) namedKeys() (list []ObjectKey) {
	for _, apiGroup := range machineGroups {
		if namespace, name := splitKey(n.named(apiGroup)); name != "" {
			list = append(list, ObjectKey{"Machine", namespace, name, apiGroup})
		}
	}
	return list
}

// text names the object in a sentence.
func (k ObjectKey) text() string {
	switch {
	case k.Kind == "":
		return "an object of an unknown kind"
	case k.Name == "":
		return "a " + k.Kind
	}
	return k.Kind + " " + key(k.Namespace, k.Name)
}

func byKey(a, b ObjectKey) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Group, b.Group))
}

// doubt returns why a Machine's reference to its Node is in doubt: another
// Machine owns the same Node, and no providerID decides between them. One that does
// not own the Node itself is refused for that, and one that yields asks for nothing.
func (o owners) doubt(m *Machine) Doubt {
	n := o.nodes[m.NodeName]
	if m.NodeName == "" || len(o.byNode[m.NodeName]) < 2 {
		return Doubt{}
	}
	list := o.of(m.NodeName, n)
	if !o.owns(m, n) || slices.ContainsFunc(list, m.yieldsTo) {
		return Doubt{}
	}
	isProven := n != nil && sameProvider(m.ProviderID, n.ProviderID)
	for _, x := range list {
		same := sameProvider(x.ProviderID, m.ProviderID)
		switch {
		case x.id() == m.id(), same && x.Group() != m.Group(): // one Machine may exist in both API families
		case same || !isProven:
			return disputed(m.NodeName, m, x)
		}
	}
	return Doubt{}
}

func disputed(node string, a, b *Machine) Doubt {
	return Doubt{reason.NodeMismatch, fmt.Sprintf("Machines %s and %s both name Node %s, and no providerID shows which of them it belongs to", a.Key(), b.Key(), node)}
}

// mismatch reports that the Node with the name that the Machine gives belongs to
// another host or another cluster. Whether the UID in the nodeRef is the Node's is
// part of owns.
func mismatch(m *Machine, n *Node) Doubt {
	if m == nil || n == nil || m.ProviderID == "" || n.ProviderID == "" || sameProvider(m.ProviderID, n.ProviderID) {
		return Doubt{}
	}
	return Doubt{reason.NodeMismatch, fmt.Sprintf("Node %s has the providerID %s, its Machine %s has %s", n.Name, n.ProviderID, m.Key(), m.ProviderID)}
}

// isDisproved reports whether the Node has another providerID than the Machine; either may be nil.
func (m *Machine) isDisproved(n *Node) bool {
	return m != nil && n != nil && n.ProviderID != "" && !sameProvider(m.ProviderID, n.ProviderID)
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
	case m == nil && n == nil:
		return l.w.owners().unreadMachineOf(nil)
	case m == nil:
		_, d := l.w.owners().machineOf(n)
		return d
	}
	if d := mismatch(m, n); d != (Doubt{}) {
		return d
	}
	return l.w.owners().doubt(m)
}
