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
//
// A Node that registers anew has another UID than its Machine remembers, for as long as the
// Cluster API's v1beta1 has the Machine. So a nodeRef with another UID is no claim, but the
// Node's own word is one all the same.

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

// NodeNames is how a Node names its Machines and its BareMetalHost.
type NodeNames struct {
	OpenShiftMachine, ClusterMachine string // see NamedMachines
	ProviderID                       string
}

// Names returns the names by which a Node names others.
func (n *Node) Names() NodeNames {
	return NodeNames{n.OpenShiftMachine, n.ClusterMachine, n.ProviderID}
}

// named returns the Machine of an API group that the Node's annotations name.
func (n *Node) named(apiGroup string) string {
	if apiGroup == group(OpenShiftMachineAPI) {
		return n.OpenShiftMachine
	}
	return n.ClusterMachine
}

// names reports whether the Node names the Machine: by annotation, or by a providerID
// that is the Machine's and that names a BareMetalHost in the namespace of the Machine, on
// the same API. Of any other providerID the Machine could have a copy.
func (r *Rules) names(n *Node, m *Machine) bool {
	if n.named(m.Group()) == m.Key() {
		return true
	}
	if !sameProvider(m.ProviderID, n.ProviderID) {
		return false
	}
	ref, err := parseProviderID(n.ProviderID)
	return err == nil && r.spaceOf(groupOfProvider(n.ProviderID), ref.namespace) == r.spaceOf(m.Group(), m.Namespace)
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

// owners are the objects that show which Machine owns which Node.
type owners struct {
	rules Rules
	nodes map[string]*Node
	// byNode lists the Machines that name a Node, sorted.
	byNode listing[string, *Machine]
	hosts  map[string]*Host // by "namespace/name"
	runs   openRuns
	// machineSpaces counts by namespace the Nodes that name a Machine there, and the open runs.
	machineSpaces machineSpaces
	// labelled is how many Nodes have a label of the control plane that no kubelet can set, and how many open runs
	// began on such a Node: the cluster labels its control plane if any does.
	labelled  int
	undecoded map[ObjectKey]int // how many objects with this key
	// unreadMachines are the undecoded objects that may be the Machine of any Node, and how many have this
	// key: those where the administrator says that Machines are, and those without a name or a kind.
	unreadMachines map[ObjectKey]int
}

// NotOwned says why a Machine does not own the Node that it names; the zero value: it does, or
// it names none.
type NotOwned struct {
	Why string
	// SpareNode: the Node does not exist, and Nodes of the cluster name Machines in the namespace.
	// What is done to the Machine alone harms nobody else.
	SpareNode bool
}

// NotOwned returns why the Machine does not own the Node that it names; n is nil if that does not exist. Such
// a Node cannot name the Machine. The BareMetalHost of the Machine can do so in its place, or an
// open run that began when the Node did.
func (o *owners) NotOwned(m *Machine, n *Node) NotOwned {
	switch {
	case m == nil:
		return NotOwned{}
	case n == nil && m.ControlPlane && !o.inControlPlane(m):
		return NotOwned{Why: fmt.Sprintf("Machine %s has the role of the control plane, and no control-plane Node names a Machine in its namespace; "+
			"if it is of this cluster, add namespace %s to clusters[].namespaces", m.Key(), m.Namespace)}
	case o.Owns(m, n):
		return NotOwned{}
	case m.namesOther(n):
		return NotOwned{Why: fmt.Sprintf("Machine %s names Node %s with the UID %s, and the Node of this name has %s and does not name the Machine: it lacks %s%s; "+
			"correct the nodeRef, or, if the Node is its, add the annotation", m.Key(), n.Name, m.NodeUID, n.UID, annotationFor(m), n.otherMachine(m))}
	case n == nil:
		return NotOwned{SpareNode: o.machineSpaces[o.rules.spaceOf(m.Group(), m.Namespace)].nodes > 0, Why: fmt.Sprintf("Machine %s names Node %s, which does not exist, and no BareMetalHost names the Machine, "+
			"so nothing shows that the Node was its; if it was, add namespace %s to clusters[].namespaces", m.Key(), m.NodeName, m.Namespace)}
	}
	return NotOwned{Why: fmt.Sprintf("Machine %s names Node %s, and the Node does not name it: it lacks %s%s; correct the nodeRef, "+
		"or, if the Node is its, add namespace %s to clusters[].namespaces", m.Key(), n.Name, annotationFor(m), n.otherMachine(m), m.Namespace)}
}

// Owns reports whether a Machine names no Node, or owns the one that it names; n is nil if that does not exist.
func (o *owners) Owns(m *Machine, n *Node) bool {
	switch {
	case m.NodeName == "":
		return true
	case n != nil && o.rules.names(n, m), o.runs[runSubject{node: m.NodeName}].isOf(m) && (n == nil || n.named(m.Group()) == ""):
		return true
	case m.namesOther(n):
		return false
	case o.rules.trusts(m.Group(), m.Namespace):
		return true
	case n != nil:
		return false
	}
	h, err := o.HostOf(m)
	return err == nil && NotLinked(m, &h) == ""
}

// namesOther reports whether the nodeRef of a Machine says that it is of another Node with the
// name of this one.
func (m *Machine) namesOther(n *Node) bool {
	return n != nil && m.NodeUID != "" && n.UID != "" && m.NodeUID != n.UID
}

// isSuspended reports whether the controllers of its API leave the Machine alone.
func (m *Machine) isSuspended() bool {
	return m.Suspended != "" || m.Paused || slices.ContainsFunc(m.Conditions, func(c Condition) bool { return c.Type == "Paused" && c.Status == "True" })
}

// yieldsTo reports whether a Machine leaves the Node that both own to the other one. OpenShift may
// keep one Machine in two APIs, and the controllers of one of them leave it alone then. A pause alone
// says nothing about whose the Node is: people pause Machines of the Cluster API.
func (m *Machine) yieldsTo(x *Machine) bool {
	switch openShift := group(OpenShiftMachineAPI); {
	case m.Group() == x.Group(), x.isSuspended():
		return false
	case m.Group() == openShift:
		return m.Suspended != ""
	}
	return m.isSuspended() && x.Authoritative
}

// inControlPlane reports whether a Machine counts as one of the control plane: it has the role, or
// its Node has, and it owns that Node. One without a Node, or with one that nobody labelled, counts where a
// control-plane Node names its Machine: whoever may write Machines elsewhere could take the turn, and the quorum,
// of all. // I12
func (o *owners) inControlPlane(m *Machine) bool {
	n := o.nodes[m.NodeName]
	switch {
	case !m.ControlPlane && (n == nil || !n.ControlPlane), n != nil && !o.Owns(m, n):
		return false
	case n != nil && (hasRoleOfAdministrator(n.Labels) || o.labelled == 0):
		return true
	case !m.ControlPlane:
		return false // nobody but the kubelet says so
	}
	run, in := o.runs[runSubject{node: m.NodeName}], o.machineSpaces[o.rules.spaceOf(m.Group(), m.Namespace)]
	return o.rules.trusts(m.Group(), m.Namespace) || run.isOf(m) && !run.TakesNoTurn ||
		in.labelled > 0 || in.controlPlane > 0 && o.labelled == 0
}

// counts reports whether a Machine counts in what all share: it owns its Node, or has none and is
// where Nodes of the cluster name their Machines, or under remediation. A Node that a run deleted
// registers again without the names that it had. // I11
func (o *owners) counts(m *Machine) bool {
	if n := o.nodes[m.NodeName]; n != nil {
		return o.Owns(m, n) || o.rules.names(o.runs[runSubject{node: n.Name}].nodeThen(), m)
	}
	return o.rules.trusts(m.Group(), m.Namespace) || o.runs.onMachine(m).ID != "" || o.machineSpaces[o.rules.spaceOf(m.Group(), m.Namespace)].nodes > 0
}

// foreign returns the reason why a Machine without a Node does not count.
func (m *Machine) foreign() string {
	return fmt.Sprintf("no Node of the cluster names a Machine in namespace %s, so Machine %s counts in no limit; if it is of this cluster, add the namespace to clusters[].namespaces",
		m.Namespace, m.Key())
}

// nodeThen is the Node of the run with what it named when the run began.
func (r OpenRun) nodeThen() *Node {
	return &Node{OpenShiftMachine: r.NodeNames.OpenShiftMachine, ClusterMachine: r.NodeNames.ClusterMachine, ProviderID: r.NodeNames.ProviderID}
}

// isOf reports whether the run is on the Machine, and not on one of its name of another API, which
// may be in a namespace of other people. Without an API it may be on either.
func (r OpenRun) isOf(m *Machine) bool {
	return r.Machine == m.Key() && (r.MachineAPI == "" || group(r.MachineAPI) == m.Group())
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

// Doubt says why it is unclear which Machine a Node belongs to; the zero value is
// no doubt. An action in spite of it may hit another host than the unhealthy one,
// or a host whose owner was not asked. // I4
type Doubt struct {
	Reason  reason.Code
	Message string
}

// ownersOf lists the Machines that own a Node, sorted, without those that yield to another one. n is
// nil if it does not exist.
func (o *owners) ownersOf(node string, n *Node) (list []*Machine) {
	for m := range o.byNode.of(node) {
		if o.Owns(m, n) {
			list = append(list, m)
		}
	}
	if len(list) < 2 {
		return list
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
func (o *owners) machineOf(n *Node) (*Machine, Doubt) {
	list := o.ownersOf(n.Name, n)
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
func (o *owners) unreadMachineOf(n *Node) Doubt {
	found, whose := ObjectKey{}, "this Node's"
	if n == nil {
		whose = "the target's"
	}
	switch {
	case len(o.unreadMachines) > 0:
		found = slices.MinFunc(slices.Collect(maps.Keys(o.unreadMachines)), byKey)
	case n == nil:
		return Doubt{}
	default:
		for _, apiGroup := range machineGroups {
			namespace, name := splitKey(n.named(apiGroup))
			if k := (ObjectKey{"Machine", namespace, name, apiGroup}); name != "" && o.undecoded[k] > 0 {
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
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Group, b.Group))
}

// doubt returns why a Machine's reference to its Node is in doubt: another
// Machine owns the same Node, and no providerID decides between them. One that does
// not own the Node itself is refused for that, and one that yields asks for nothing.
func (o *owners) doubt(m *Machine) Doubt {
	n := o.nodes[m.NodeName]
	if m.NodeName == "" || o.byNode.len(m.NodeName) < 2 {
		return Doubt{}
	}
	list := o.ownersOf(m.NodeName, n)
	if !o.Owns(m, n) || slices.ContainsFunc(list, m.yieldsTo) {
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
// part of Owns.
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
func (o *owners) Doubt(m *Machine, n *Node) Doubt {
	switch {
	case m == nil && n == nil:
		return o.unreadMachineOf(nil)
	case m == nil:
		_, d := o.machineOf(n)
		return d
	}
	if d := mismatch(m, n); d != (Doubt{}) {
		return d
	}
	return o.doubt(m)
}
