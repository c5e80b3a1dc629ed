package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/reason"
)

// Whoever may write a Machine writes its nodeRef and its providerID. So a Machine owns
// the Node that it names only if the Node names it, too, or if the administrator named
// the namespace of the Machine. A Machine that does not own its Node decides nothing
// about that Node, and raises no doubt about it: Machines in any namespace could name
// the Node of anybody. // I4, I8

// NamedMachines returns the Machines that a Node names by its annotations, each as
// "namespace/name" or "": that of OpenShift, and that of the Cluster API. OpenShift's
// nodelink controller and the Cluster API's Machine controller write them.
func NamedMachines(annotations map[string]string) (openShift, clusterAPI string) {
	namespace, name := annotations[clusterNamespaceAnnotation], annotations[clusterMachineAnnotation]
	if namespace != "" && name != "" {
		clusterAPI = key(namespace, name)
	}
	return annotations[openShiftMachineAnnotation], clusterAPI
}

// The annotations of a Node that name its Machine.
const (
	openShiftMachineAnnotation = "machine.openshift.io/machine"
	clusterNamespaceAnnotation = "cluster.x-k8s.io/cluster-namespace"
	clusterMachineAnnotation   = "cluster.x-k8s.io/machine"
)

// named returns the Machine of an API group that the Node's annotations name.
func (n *Node) named(apiGroup string) string {
	if apiGroup == group(OpenShiftMachineAPI) {
		return n.OpenShiftMachine
	}
	return n.ClusterMachine
}

// names reports whether the Node names the Machine: by annotation, or by a providerID
// that is the Machine's and that names a BareMetalHost in the namespace of the Machine.
// Of any other providerID the Machine could have a copy.
func (n *Node) names(m *Machine) bool {
	if n.named(m.Group()) == m.Key() {
		return true
	}
	if !sameProvider(m.ProviderID, n.ProviderID) {
		return false
	}
	ref, err := parseProviderID(n.ProviderID)
	return err == nil && ref.namespace == m.Namespace
}

// trusts reports whether the administrator named the namespace of Machines of an API
// group. An empty group stands for any.
func (r *Rules) trusts(apiGroup, namespace string) bool {
	switch {
	case r.TrustNames:
		return true
	case r.ManagementNamespace != "" && apiGroup != group(OpenShiftMachineAPI):
		return namespace == r.ManagementNamespace || apiGroup == "" && slices.Contains(r.Namespaces, namespace)
	}
	return slices.Contains(r.Namespaces, namespace)
}

// NotOwned is why a Machine does not own the Node that it names; the zero value: it does, or
// it names none.
type NotOwned struct {
	Why string
	// SpareNode: the Node does not exist, and Nodes of the cluster name Machines in the namespace.
	// What is done to the Machine alone harms nobody else.
	SpareNode bool
}

// notOwned compares a Machine with the Node that it names; n is nil if that does not exist. Such
// a Node cannot name the Machine. The BareMetalHost of the Machine can do so in its place, or an
// open run that began when the Node did.
func (w *tables) notOwned(m *Machine, n *Node) NotOwned {
	switch {
	case m == nil:
		return NotOwned{}
	case n == nil && m.ControlPlane && !w.inControlPlane(m):
		return NotOwned{Why: fmt.Sprintf("Machine %s has the role of the control plane, and no control-plane Node names a Machine in its namespace; "+
			"if it is of this cluster, add namespace %s to clusters[].namespaces", m.Key(), m.Namespace)}
	case m.NodeName == "", w.owns(m, n):
		return NotOwned{}
	case n == nil:
		return NotOwned{SpareNode: w.machineSpaces[m.Namespace].nodes > 0, Why: fmt.Sprintf("Machine %s names Node %s, which does not exist, and no BareMetalHost names the Machine, "+
			"so nothing shows that the Node was its; if it was, add namespace %s to clusters[].namespaces", m.Key(), m.NodeName, m.Namespace)}
	}
	return NotOwned{Why: fmt.Sprintf("Machine %s names Node %s, and the Node does not name it: it has not %s%s; correct the nodeRef, "+
		"or, if the Node is its, add namespace %s to clusters[].namespaces", m.Key(), n.Name, annotationFor(m), n.otherMachine(m), m.Namespace)}
}

// owns reports whether a Machine owns the Node that it names.
func (w *tables) owns(m *Machine, n *Node) bool {
	switch {
	case w.rules.trusts(m.Group(), m.Namespace), n != nil && n.names(m), w.hasRunOn(m):
		return true
	case n != nil:
		return false
	}
	h, err := w.hostOf(m)
	return err == nil && NotLinked(m, &h) == ""
}

// inControlPlane reports whether a Machine counts as one of the control plane: it has the role, or
// its Node has, and it owns that Node. One without a Node counts where a control-plane Node names
// its Machine: whoever may write Machines elsewhere could take the turn, and the quorum, of all. // I12
func (w *tables) inControlPlane(m *Machine) bool {
	n := w.nodes[m.NodeName]
	switch {
	case !m.ControlPlane && (n == nil || !n.ControlPlane):
		return false
	case n != nil:
		return w.owns(m, n)
	}
	return w.rules.trusts(m.Group(), m.Namespace) || w.hasRunOn(m) || w.machineSpaces[m.Namespace].controlPlane > 0
}

// hasRunOn reports whether an open run is on the Machine and on the Node that it names.
func (w *tables) hasRunOn(m *Machine) bool {
	return m.NodeName != "" && w.runs[runSubject{node: m.NodeName}].Machine == m.Key()
}

// ownsTarget reports whether the Machine of an evaluated target owns its Node.
func (w *tables) ownsTarget(t *TargetReport) bool {
	m := machineOfTarget(w, t)
	return m == nil || w.owns(m, w.nodes[t.Node])
}

// spaceCount is how many Nodes, and Nodes of the control plane, name a Machine in a namespace.
type spaceCount struct{ nodes, controlPlane int }

// countSpaces counts a Node in the namespaces that it names, or removes it: by is 1 or -1.
func (w *tables) countSpaces(n *Node, by int) {
	for _, namespace := range n.spaces() {
		c := w.machineSpaces[namespace]
		c.nodes += by
		if n.ControlPlane {
			c.controlPlane += by
		}
		w.machineSpaces[namespace] = c
		if c.nodes == 0 {
			delete(w.machineSpaces, namespace)
		}
	}
}

// spaces are the namespaces of the Machines that the Node names.
func (n *Node) spaces() (list []string) {
	if n == nil {
		return nil
	}
	for _, named := range []string{n.OpenShiftMachine, n.ClusterMachine} {
		if namespace, _, found := strings.Cut(named, "/"); found {
			list = append(list, namespace)
		}
	}
	if ref, err := parseProviderID(n.ProviderID); err == nil && ref.namespace != "" {
		list = append(list, ref.namespace)
	}
	return list
}

// annotationFor is the annotation with which a Node names the Machine.
func annotationFor(m *Machine) string {
	if m.Group() == group(OpenShiftMachineAPI) {
		return "the annotation " + openShiftMachineAnnotation + ": " + m.Key()
	}
	return fmt.Sprintf("the annotations %s: %s and %s: %s", clusterNamespaceAnnotation, m.Namespace, clusterMachineAnnotation, m.Name)
}

// otherMachine says which other Machine of the same API the Node names.
func (n *Node) otherMachine(m *Machine) string {
	if other := n.named(m.Group()); other != "" {
		return " (it names " + other + ")"
	}
	return ""
}

// NotOwned returns why the Machine does not own the Node that it names. n is nil if that
// Node does not exist.
func (l *Ledger) NotOwned(m *Machine, n *Node) NotOwned { return l.w.notOwned(m, n) }

// Doubt is why it is unclear which Machine a Node belongs to; the zero value is
// no doubt. An action in spite of it may hit another host than the unhealthy one,
// or a host whose owner was not asked. // I4
type Doubt struct {
	Reason  reason.Code
	Message string
}

// ownersOf lists the Machines that own a Node, sorted. n is nil if it does not exist.
func (w *tables) ownersOf(node string, n *Node) (list []*Machine) {
	for _, m := range w.byNode[node] {
		if w.owns(m, n) {
			list = append(list, m)
		}
	}
	return list
}

// machineOf returns the Machine of a Node. If several Machines own the Node, the
// Node's providerID decides. A nil Machine with a zero Doubt means that the Node
// has none.
func (w *tables) machineOf(n *Node) (*Machine, Doubt) {
	list := w.ownersOf(n.Name, n)
	switch len(list) {
	case 0:
		return nil, w.unreadMachineOf(n)
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
func (w *tables) unreadMachineOf(n *Node) Doubt {
	found, whose := ObjectKey{}, "this Node's"
	if n == nil {
		whose = "the target's"
	}
	switch {
	case len(w.unreadMachines) > 0:
		found = slices.MinFunc(slices.Collect(maps.Keys(w.unreadMachines)), byKey)
	case n == nil:
		return Doubt{}
	default:
		for _, named := range []string{n.OpenShiftMachine, n.ClusterMachine} {
			namespace, name := splitKey(named)
			if k := (ObjectKey{"Machine", namespace, name}); name != "" && w.undecoded[k] > 0 {
				found = k
			}
		}
		if found == (ObjectKey{}) {
			return Doubt{}
		}
	}
	return Doubt{reason.Undecodable, found.text() + " could not be decoded, and it may be " + whose}
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
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// doubt returns why a Machine's reference to its Node is in doubt: another
// Machine owns the same Node, and no providerID decides between them. One that does
// not own the Node itself is refused for that.
func (w *tables) doubt(m *Machine) Doubt {
	n := w.nodes[m.NodeName]
	if m.NodeName == "" || len(w.byNode[m.NodeName]) < 2 || !w.owns(m, n) {
		return Doubt{}
	}
	isProven := n != nil && sameProvider(m.ProviderID, n.ProviderID)
	for _, o := range w.ownersOf(m.NodeName, n) {
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
	case m == nil && n == nil:
		return l.w.unreadMachineOf(nil)
	case m == nil:
		_, d := l.w.machineOf(n)
		return d
	}
	if d := mismatch(m, n); d != (Doubt{}) {
		return d
	}
	return l.w.doubt(m)
}
