package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/reason"
)

// A Node is of the control plane if a label says so, or if a member of etcd or an API server runs on it
// as a Pod. In doubt it is: then its host has to wait for its turn and for the quorum, it is not isolated by
// deletion, and its Machine is not replaced. What others then have to wait for is told below. // I12

// ControlPlaneLabels are the labels of a Node of the control plane, whatever their values.
var ControlPlaneLabels = []string{
	"node-role.kubernetes.io/control-plane", // kubeadm, OpenShift, k3s, RKE2, k0s, Talos
	"node-role.kubernetes.io/master",        // OpenShift, and kubeadm before Kubernetes 1.24
	labelEtcd,                               // servers of k3s, RKE2 and RKE with etcd, also those without anything else
	"node-role.kubernetes.io/controlplane",  // RKE
	labelArbiter,                            // OpenShift with two masters and an arbiter
	labelMicroK8s,
}

// The labels among them of a Node with a member of etcd.
const (
	labelEtcd    = "node-role.kubernetes.io/etcd"
	labelArbiter = "node-role.kubernetes.io/arbiter"
)

// ControlPlaneNode reports whether the labels of a Node say that it is of the control plane. Its Pods may say
// so, too: Node.ControlPlane of a Node in the view says both.
func ControlPlaneNode(of labels.Labels) bool { return slices.ContainsFunc(ControlPlaneLabels, of.Has) }

// ControlPlaneMachine reports whether a Machine with these labels and this owner carries a part of the control
// plane.
func ControlPlaneMachine(of labels.Set, owner Owner) bool {
	switch of["machine.openshift.io/cluster-api-machine-role"] {
	case "master", "control-plane", "arbiter":
		return true
	}
	return of.Has(controlPlaneLabel) || owner.recreatesControlPlane() ||
		of["rke.cattle.io/control-plane-role"] == "true" || of["rke.cattle.io/etcd-role"] == "true" // of Rancher
}

// recreatesControlPlane reports whether the owner replaces control-plane
// Machines.
func (o Owner) recreatesControlPlane() bool {
	return o.Kind == "ControlPlaneMachineSet" || o.Kind == "KubeadmControlPlane"
}

// PodSpace is a namespace with Pods of the control plane. Kubernetes or the distribution owns it, so that no
// tenant makes Pods there.
type PodSpace struct {
	Namespace string
	// Label is the key by whose value these Pods are found; Etcd and APIServer are the values. "": there is none.
	Label, Etcd, APIServer string
}

// PodSpaces are all of them.
var PodSpaces = []PodSpace{
	{Namespace: "kube-system", Label: "component", Etcd: "etcd", APIServer: "kube-apiserver"}, // kubeadm, RKE2
	{Namespace: "openshift-etcd", Label: "app", Etcd: "etcd"},
	{Namespace: "openshift-kube-apiserver", Label: "app", APIServer: "openshift-kube-apiserver"},
}

// Values are those of the label.
func (s PodSpace) Values() []string {
	return slices.DeleteFunc([]string{s.Etcd, s.APIServer}, func(v string) bool { return v == "" })
}

// ControlPlanePod reports whether a Pod with these labels runs a part of the control plane, and whether that is
// a member of etcd.
func ControlPlanePod(namespace string, labels map[string]string) (part, member bool) {
	for _, s := range PodSpaces {
		if value, ok := labels[s.Label]; ok && s.Namespace == namespace && slices.Contains(s.Values(), value) {
			return true, value == s.Etcd
		}
	}
	return false, false
}

// Pod is the Pod of a member of etcd, or of an API server.
type Pod struct {
	Namespace, Name string
	Node            string
	Member          bool // of etcd
	Ready           bool
}

// podIndex are the Pods of the control plane, and how many of them are on a Node.
type podIndex struct {
	byName map[ObjectKey]*Pod
	onNode map[string]int
}

// set replaces a Pod; nil removes it. It returns the Nodes on which it was and is.
func (x podIndex) set(k ObjectKey, p *Pod) (nodes []string) {
	if old := x.byName[k]; old != nil {
		delete(x.byName, k)
		nodes = append(nodes, old.Node)
		if x.onNode[old.Node]--; x.onNode[old.Node] == 0 {
			delete(x.onNode, old.Node)
		}
	}
	if p != nil {
		x.byName[k] = p
		x.onNode[p.Node]++
		nodes = append(nodes, p.Node)
	}
	return nodes
}

// withRole returns the Node with the role that its labels and the Pods on it give it. // I12
func (x podIndex) withRole(n *Node) *Node {
	by := x.onNode[n.Name] > 0
	if n.ControlPlane && !n.fromPod || by == n.fromPod {
		return n
	}
	other := *n
	other.ControlPlane, other.fromPod = by, by
	return &other
}

// mayHaveMember returns which Nodes of the control plane may have a member of etcd: all, or in a cluster that
// labels those that have one, as k3s, RKE2 and RKE do, only these. A Node that is gone, or that an open run may
// have taken its labels from, counts as it was. // I12
func mayHaveMember(w *tables) func(name string) bool {
	if !labelsMembers(w) {
		return func(string) bool { return true }
	}
	return func(name string) bool {
		n := w.nodes[name]
		r, open := w.runs[runSubject{node: name}]
		return n == nil && !open || n != nil && hasMember(n.Labels) || open && (r.NodeLabels == nil || hasMember(labels.Set(r.NodeLabels)))
	}
}

// labelsMembers reports whether the cluster labels the Nodes with a member of etcd: some Node has the label, and
// so has each one on which a member is seen.
func labelsMembers(w *tables) bool {
	for _, p := range w.pods.byName {
		n := w.nodes[p.Node]
		if counts, _ := w.showsMembers(p.Node); p.Member && counts && (n == nil || !hasMember(n.Labels)) {
			return false
		}
	}
	for _, n := range w.nodesWithRole {
		if n.Labels.Has(labelEtcd) {
			return true
		}
	}
	return false
}

// hasMember reports whether the labels of a Node say that a member of etcd runs there.
func hasMember(of labels.Labels) bool {
	return of.Has(labelEtcd) || of.Has(labelArbiter)
}

// Member is one etcd member. Healthy means that its Pod is Ready on a Ready Node.
type Member struct {
	Node    string
	Healthy bool
}

// Quorum reports whether etcd keeps its quorum without the member on a Node; an
// empty code means that it does. The second result explains it. The target counts
// as a member even if no member was seen on it. A member whose Node is gone is
// not seen but still counts in etcd, so the number of members is at least
// atLeast. // I12
func Quorum(members []Member, node string, atLeast int, rules Rules) (reason.Code, string) {
	switch {
	case rules.ControlPlaneNever:
		return reason.ControlPlane, "guards.controlPlane is never"
	case rules.ExternalEtcd:
		return "", "etcd runs elsewhere"
	case len(members) == 0:
		return reason.QuorumUnknown, "no etcd member is seen"
	}
	healthy := map[string]bool{node: false} // by Node; if it has several Pods, all must be healthy
	for _, m := range members {
		before, seen := healthy[m.Node]
		healthy[m.Node] = m.Healthy && (before || !seen)
	}
	size, others := max(len(healthy), atLeast), 0
	for name, ok := range healthy {
		if ok && name != node {
			others++
		}
	}
	need := size/2 + 1
	message := fmt.Sprintf("%d of %d members are healthy without it, %d are needed", others, size, need)
	if others < need {
		return reason.QuorumLost, message
	}
	return "", message
}

// members returns the etcd members that the tables show; false if an object that
// could not be decoded may be one of them.
func (w *tables) members() ([]Member, bool) {
	if w.unreadPods > 0 || w.unreadAny > 0 {
		return nil, false
	}
	var list []Member
	for _, p := range w.pods.byName {
		if !p.Member {
			continue
		}
		n := w.nodes[p.Node]
		list = append(list, Member{Node: p.Node, Healthy: p.Ready && n != nil && n.Ready()})
	}
	list = w.counted(list)
	if len(list) == 0 && w.rules.NodesCountAsMembers {
		may := mayHaveMember(w)
		for _, n := range w.controlPlaneNodes() {
			if may(n.Name) {
				list = append(list, Member{Node: n.Name, Healthy: n.Ready()})
			}
		}
	}
	return list, true
}

// controlPlaneSize is the number of control-plane hosts that may have a member of etcd: the larger of the number
// of their Machines and of their Nodes, including those that a run has deleted.
func (w *tables) controlPlaneSize() int {
	may := mayHaveMember(w)
	machines := map[string]map[string]bool{} // by cluster: the Nodes are of one
	note := func(m *Machine) {
		if !w.inControlPlane(m) || !may(m.NodeName) {
			return
		}
		in := key(m.Namespace, m.ClusterName)
		if machines[in] == nil {
			machines[in] = map[string]bool{}
		}
		machines[in][cmp.Or(m.NodeName, m.Key())] = true // both API families may have it
	}
	for _, m := range w.machinesWithRole {
		note(m)
	}
	for name := range w.nodesWithRole {
		for m := range w.byNode.of(name) {
			note(m)
		}
	}
	nodes := map[string]bool{}
	for name := range w.controlPlaneNodes() {
		nodes[name] = may(name)
	}
	for _, r := range w.runs {
		if r.takesTurn() && r.Node != "" {
			nodes[r.Node] = may(r.Node)
		}
	}
	maps.DeleteFunc(nodes, func(_ string, may bool) bool { return !may })
	size := len(nodes)
	for _, list := range machines {
		size = max(size, len(list))
	}
	return size
}

// Quorum reports whether etcd keeps its quorum without the member on a Node, by members that were just read.
func (l *Ledger) Quorum(members []Member, node string) (reason.Code, string) {
	return Quorum(l.tables.counted(members), node, l.tables.controlPlaneSize(), l.tables.rules)
}

// controlPlaneNodes returns the Nodes of control-plane hosts, by the role of the
// Node or of its Machine.
func (w *tables) controlPlaneNodes() map[string]*Node {
	all := maps.Clone(w.nodesWithRole)
	maps.DeleteFunc(all, func(_ string, n *Node) bool { return !w.isOfAll(n) })
	for _, m := range w.machinesWithRole {
		if n := w.nodes[m.NodeName]; n != nil && w.inControlPlane(m) {
			all[n.Name] = n
		}
	}
	return all
}

// guardControlPlane lets at most one control-plane host at a time be remediated,
// and none whose loss would cost etcd its quorum. // I12
func (w *tables) guardControlPlane(r *Report) {
	var waiting []*TargetReport
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			// What removes a member of etcd, where no other controller protects the quorum. The deletion of a
			// control-plane Machine is refused elsewhere unless the administrator allowed it.
			t := &r.Checks[i].Targets[j]
			if t.ControlPlane && (t.Action == PowerCycle || t.Action == CreateRequest || t.Action == DeleteMachine && w.rules.DeleteControlPlaneMachines) {
				waiting = append(waiting, t)
			}
		}
	}
	if len(waiting) == 0 {
		return
	}
	members, known := w.members()
	size := w.controlPlaneSize()
	for _, t := range waiting {
		code, _ := Quorum(members, t.Node, size, w.rules)
		if !known && code != reason.ControlPlane {
			code = reason.QuorumUnknown
		}
		if code != "" {
			t.refuse(code)
		}
	}
	inFlight := w.controlPlaneInFlight()
	if len(inFlight) == 0 {
		if first := firstInLine(slices.DeleteFunc(slices.Clone(waiting), func(t *TargetReport) bool {
			return !w.TakesTurn(w.nodes[t.Node], machineOfTarget(w, t))
		})); first != "" {
			inFlight = map[string]bool{first: true}
		}
	}
	for _, t := range waiting {
		if len(inFlight) > 1 || len(inFlight) == 1 && !inFlight[t.Subject()] {
			t.refuse(reason.ControlPlaneBusy)
		}
	}
}

// controlPlaneInFlight lists the control-plane targets that are under remediation
// or being replaced, or whose remediation has been requested.
func (w *tables) controlPlaneInFlight() map[string]bool {
	busy := map[string]bool{}
	mark := func(m *Machine) {
		if w.inControlPlane(m) {
			busy[cmp.Or(m.NodeName, m.Key())] = true
		}
	}
	for _, m := range w.underRemediation {
		mark(m)
	}
	for _, r := range w.runs {
		if r.takesTurn() { // a run may itself have deleted its Node
			busy[cmp.Or(r.Node, r.Machine)] = true
		}
		for _, m := range w.machinesOf(r) {
			mark(m)
		}
		if n := w.nodes[r.Node]; w.isOfAll(n) {
			busy[n.Name] = true
		}
	}
	for at, list := range w.requests.byPlace {
		n := w.nodes[at.target] // a request that a person or an old operator made has no label
		for _, q := range list {
			if q.Power != nil && !q.Power.FinalizerElsewhere {
				continue // fenced carries it out, one at a time: its run counts, and not an object that stays behind
			}
			if at.target == q.targetName() && (q.ControlPlane || w.isOfAll(n)) && w.requests.mayBeFor(q, nil, n) {
				busy[at.target] = true
			}
			for m := range w.byKey.of(at.target) {
				if q.IsFor(TargetNames{m.Namespace, m.Name, m.UID, m.NodeName}) && w.requests.mayBeFor(q, m, w.nodes[m.NodeName]) {
					mark(m)
				}
			}
		}
	}
	return busy
}

// firstInLine returns the first target by name that nothing refuses, or else the
// first that only its quorum refuses. A target that is refused anyway must not
// block the others.
func firstInLine(waiting []*TargetReport) string {
	first, free := "", false
	for _, t := range waiting {
		refused := slices.ContainsFunc(t.Refusals, func(r reason.Code) bool { return r != reason.QuorumUnknown && r != reason.QuorumLost })
		open := len(t.Refusals) == 0
		if !refused && (first == "" || open && !free || open == free && t.Subject() < first) {
			first, free = t.Subject(), open
		}
	}
	return first
}

// A kubelet writes the mirror Pods on its Node, and the labels of its Node below node.kubernetes.io/. So in a cluster
// that labels its control plane they make that Node only more careful for itself: it waits for its turn and for the
// quorum, is not isolated by deletion, and its Machine is not replaced. No other host waits for it, and what looks like
// a member of etcd there is none to others: neither a healthy one, which could make fencing less careful, nor one more,
// which could forbid it for ever. The administrator's word are the other labels, which NodeRestriction lets no kubelet
// set, and the role of a Machine that counts. A cluster is one that labels its control plane if a Node has such a label,
// or had it when an open run began. In any other, what kubelets say counts. // I2, I12

// labelMicroK8s is of the nodes of MicroK8s with a control plane. Kubelets can set it.
const labelMicroK8s = "node.kubernetes.io/microk8s-controlplane"

// hasRoleOfAdministrator reports whether one of these labels of a Node is one of the control plane that no kubelet can set.
func hasRoleOfAdministrator(of labels.Labels) bool {
	return slices.ContainsFunc(ControlPlaneLabels, func(key string) bool { return key != labelMicroK8s && of.Has(key) })
}

// takesTurn reports whether other hosts of the control plane wait for the run.
func (r OpenRun) takesTurn() bool { return r.ControlPlane && !r.TakesNoTurn }

// isOfAll reports whether a Node is of the control plane to all others, and not only for itself. It may be nil.
func (o *owners) isOfAll(n *Node) bool {
	if n == nil || hasRoleOfAdministrator(n.Labels) || o.labelled == 0 {
		return n != nil && n.ControlPlane
	}
	for m := range o.byNode.of(n.Name) {
		if o.inControlPlane(m) {
			return true
		}
	}
	return false
}

func (o *owners) TakesTurn(n *Node, m *Machine) bool {
	return o.labelled == 0 || o.isOfAll(n) || m != nil && o.inControlPlane(m)
}

// Unlabelled lists the Nodes that only their kubelets make one of the control plane, where that counts for nobody else.
func (l *Ledger) Unlabelled() (names []string) {
	o := l.tables
	for name, n := range l.tables.nodesWithRole {
		if !o.isOfAll(n) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// counted leaves out the members of etcd that count for nobody.
func (o *owners) counted(members []Member) (list []Member) {
	for _, m := range members {
		if counts, mayBeHealthy := o.showsMembers(m.Node); counts {
			list = append(list, Member{Node: m.Node, Healthy: m.Healthy && mayBeHealthy})
		}
	}
	return list
}

// showsMembers reports whether the Pods on a Node count as members of etcd, and whether they may be healthy ones. A
// Node that is gone, or that could not be decoded, may have had the label; one on which a run is open may have lost it.
func (o *owners) showsMembers(node string) (counts, mayBeHealthy bool) {
	n := o.nodes[node]
	r, open := o.runs[runSubject{node: node}]
	switch {
	case o.labelled == 0, o.isOfAll(n), open && r.takesTurn():
		return true, true
	}
	return n == nil && !open, false
}
