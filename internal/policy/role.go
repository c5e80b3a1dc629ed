package policy

import (
	"cmp"
	"maps"
	"slices"
)

// A Node is of the control plane if a label says so, or if a member of etcd or an API server runs on it
// as a Pod. In doubt it is: then its host has to wait for its turn and for the quorum, it is not isolated by
// deletion, and its Machine is not replaced. So whoever labels a Node, or makes such a Pod, only makes fencing
// more careful. // I12

// ControlPlaneLabels are the labels of a Node of the control plane, whatever their values.
var ControlPlaneLabels = []string{
	"node-role.kubernetes.io/control-plane",    // kubeadm, OpenShift, k3s, RKE2, k0s, Talos
	"node-role.kubernetes.io/master",           // OpenShift, and kubeadm before Kubernetes 1.24
	labelEtcd,                                  // servers of k3s, RKE2 and RKE with etcd, also those without anything else
	"node-role.kubernetes.io/controlplane",     // RKE
	labelArbiter,                               // OpenShift with two masters and an arbiter
	"node.kubernetes.io/microk8s-controlplane", // MicroK8s
}

// The labels among them of a Node with a member of etcd.
const (
	labelEtcd    = "node-role.kubernetes.io/etcd"
	labelArbiter = "node-role.kubernetes.io/arbiter"
)

// ControlPlaneNode reports whether the labels of a Node say that it is of the control plane. Its Pods may say
// so, too: Node.ControlPlane of a Node in the view says both.
func ControlPlaneNode(labels map[string]string) bool {
	return slices.ContainsFunc(ControlPlaneLabels, func(key string) bool { return has(labels, key) })
}

func has(labels map[string]string, key string) bool {
	_, ok := labels[key]
	return ok
}

// ControlPlaneMachine reports whether a Machine with these labels and this owner carries a part of the control
// plane.
func ControlPlaneMachine(labels map[string]string, owner Owner) bool {
	switch labels["machine.openshift.io/cluster-api-machine-role"] {
	case "master", "control-plane", "arbiter":
		return true
	}
	return has(labels, "cluster.x-k8s.io/control-plane") || owner.recreatesControlPlane() ||
		labels["rke.cattle.io/control-plane-role"] == "true" || labels["rke.cattle.io/etcd-role"] == "true" // of Rancher
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

// HasControlPlanePods reports whether a namespace is one of them.
func HasControlPlanePods(namespace string) bool {
	return slices.ContainsFunc(PodSpaces, func(s PodSpace) bool { return s.Namespace == namespace })
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

func newPodIndex() podIndex { return podIndex{map[ObjectKey]*Pod{}, map[string]int{}} }

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

// withRoles returns the Nodes of a snapshot, each with its role.
func (x podIndex) withRoles(nodes map[string]*Node) map[string]*Node {
	all := maps.Clone(nodes)
	for name := range x.onNode {
		if n := all[name]; n != nil {
			all[name] = x.withRole(n)
		}
	}
	return all
}

func podOrder(a, b *Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
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
		return n == nil && !open || n != nil && hasMember(n.Labels) || open && (r.NodeLabels == nil || hasMember(r.NodeLabels))
	}
}

// labelsMembers reports whether the cluster labels the Nodes with a member of etcd: some Node has the label, and
// so has each one on which a member is seen.
func labelsMembers(w *tables) bool {
	for _, p := range w.pods.byName {
		if n := w.nodes[p.Node]; p.Member && (n == nil || !hasMember(n.Labels)) {
			return false
		}
	}
	for _, n := range w.nodesWithRole {
		if has(n.Labels, labelEtcd) {
			return true
		}
	}
	return false
}

// hasMember reports whether the labels of a Node say that a member of etcd runs there.
func hasMember(labels map[string]string) bool {
	return has(labels, labelEtcd) || has(labels, labelArbiter)
}
