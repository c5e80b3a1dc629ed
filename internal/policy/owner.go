package policy

import (
	"fmt"
	"slices"
	"strings"
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
	return err == nil && r.spaceOf(groupOfProvider(n.ProviderID), ref.namespace) == r.spaceOfMachine(m)
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
	rules  *Rules
	nodes  map[string]*Node
	byNode map[string][]*Machine
	hosts  hostsByName
	runs   openRuns
	spaces machineSpaces
	// undecoded are all objects that could not be decoded, and unread those that may be any Machine.
	undecoded, unread map[ObjectKey]int
}

func (w *tables) owners() owners {
	return owners{&w.rules, w.nodes, w.byNode, w.hosts, w.runs, w.machineSpaces, w.undecoded, w.unreadMachines}
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
func (o owners) notOwned(m *Machine, n *Node) NotOwned {
	switch {
	case m == nil:
		return NotOwned{}
	case n == nil && m.ControlPlane && !o.inControlPlane(m):
		return NotOwned{Why: fmt.Sprintf("Machine %s has the role of the control plane, and no control-plane Node names a Machine in its namespace; "+
			"if it is of this cluster, add namespace %s to clusters[].namespaces", m.Key(), m.Namespace)}
	case m.NodeName == "", o.owns(m, n):
		return NotOwned{}
	case m.namesOther(n):
		return NotOwned{Why: fmt.Sprintf("Machine %s names Node %s with the UID %s, and the Node of this name has %s and does not name the Machine: it has not %s%s; "+
			"correct the nodeRef, or, if the Node is its, add the annotation", m.Key(), n.Name, m.NodeUID, n.UID, annotationFor(m), n.otherMachine(m))}
	case n == nil:
		return NotOwned{SpareNode: o.spaces[o.rules.spaceOfMachine(m)].nodes > 0, Why: fmt.Sprintf("Machine %s names Node %s, which does not exist, and no BareMetalHost names the Machine, "+
			"so nothing shows that the Node was its; if it was, add namespace %s to clusters[].namespaces", m.Key(), m.NodeName, m.Namespace)}
	}
	return NotOwned{Why: fmt.Sprintf("Machine %s names Node %s, and the Node does not name it: it has not %s%s; correct the nodeRef, "+
		"or, if the Node is its, add namespace %s to clusters[].namespaces", m.Key(), n.Name, annotationFor(m), n.otherMachine(m), m.Namespace)}
}

// owns reports whether a Machine owns the Node that it names.
func (o owners) owns(m *Machine, n *Node) bool {
	switch {
	case n != nil && o.rules.names(n, m), o.hasRunOn(m) && (n == nil || n.named(m.Group()) == ""):
		return true
	case m.namesOther(n):
		return false
	case o.rules.trusts(m.Group(), m.Namespace):
		return true
	case n != nil:
		return false
	}
	h, err := o.hosts.of(m)
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
// its Node has, and it owns that Node. One without a Node counts where a control-plane Node names
// its Machine: whoever may write Machines elsewhere could take the turn, and the quorum, of all. // I12
func (o owners) inControlPlane(m *Machine) bool {
	n := o.nodes[m.NodeName]
	switch {
	case !m.ControlPlane && (n == nil || !n.ControlPlane):
		return false
	case n != nil:
		return o.owns(m, n)
	}
	return o.rules.trusts(m.Group(), m.Namespace) || o.hasRunOn(m) || o.spaces[o.rules.spaceOfMachine(m)].controlPlane > 0
}

// counts reports whether a Machine counts in what all share: it owns its Node, or has none and is
// where Nodes of the cluster name their Machines, or under remediation. A Node that a run deleted
// registers again without the names that it had. // I11
func (o owners) counts(m *Machine) bool {
	if n := o.nodes[m.NodeName]; n != nil {
		return o.owns(m, n) || o.rules.names(o.runs[runSubject{node: n.Name}].nodeThen(), m)
	}
	return o.rules.trusts(m.Group(), m.Namespace) || o.runs.onMachine(m).ID != "" || o.spaces[o.rules.spaceOfMachine(m)].nodes > 0
}

// foreign says why a Machine without a Node does not count.
func (m *Machine) foreign() string {
	return fmt.Sprintf("no Node of the cluster names a Machine in namespace %s, so Machine %s counts in no limit; if it is of this cluster, add the namespace to clusters[].namespaces",
		m.Namespace, m.Key())
}

// nodeThen is the Node of the run with what it named when the run began.
func (r OpenRun) nodeThen() *Node {
	return &Node{OpenShiftMachine: r.NodeNames.OpenShiftMachine, ClusterMachine: r.NodeNames.ClusterMachine, ProviderID: r.NodeNames.ProviderID}
}

// hasRunOn reports whether an open run is on the Machine and on the Node that it names.
func (o owners) hasRunOn(m *Machine) bool {
	return m.NodeName != "" && o.runs[runSubject{node: m.NodeName}].isOf(m)
}

// isOf reports whether the run is on the Machine, and not on one of its name of another API, which
// may be in a namespace of other people.
func (r OpenRun) isOf(m *Machine) bool {
	return r.Machine == m.Key() && (r.MachineAPI == "" || group(r.MachineAPI) == m.Group())
}

// spaceCount is how many Nodes, and Nodes of the control plane, name a Machine in a namespace.
type spaceCount struct{ nodes, controlPlane int }

// machineSpaces are the namespaces in which Nodes name a Machine. An open run counts like the
// Node on which it is, as that was when the run began: it may have deleted that. // I11
type machineSpaces map[space]spaceCount

// count counts a Node in the namespaces that it names, or removes it: by is 1 or -1.
func (s machineSpaces) count(rules *Rules, n *Node, by int) {
	for _, in := range rules.spacesOfNode(n) {
		s.add(in, n.ControlPlane, by)
	}
}

// countRun does that with an open run.
func (s machineSpaces) countRun(rules *Rules, r OpenRun, by int) {
	for _, in := range rules.spacesOfRun(&r) {
		s.add(in, r.ControlPlane, by)
	}
}

func (s machineSpaces) add(in space, controlPlane bool, by int) {
	c := s[in]
	c.nodes += by
	if controlPlane {
		c.controlPlane += by
	}
	s[in] = c
	if c.nodes == 0 {
		delete(s, in)
	}
}

// spaces are the namespaces of the Machines that the Node names, each once.
func (n *Node) spaces() (list []string) {
	if n == nil {
		return nil
	}
	add := func(namespace string) {
		if namespace != "" && !slices.Contains(list, namespace) {
			list = append(list, namespace)
		}
	}
	for _, named := range []string{n.OpenShiftMachine, n.ClusterMachine} {
		if namespace, _, found := strings.Cut(named, "/"); found {
			add(namespace)
		}
	}
	if ref, err := parseProviderID(n.ProviderID); err == nil {
		add(ref.namespace)
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
func (l *Ledger) NotOwned(m *Machine, n *Node) NotOwned { return l.w.owners().notOwned(m, n) }
