package policy

import "slices"

// A kubelet writes the mirror Pods on its Node, and the labels of its Node below node.kubernetes.io/. So in a cluster
// that labels its control plane they make that Node only more careful for itself: it waits for its turn and for the
// quorum, is not isolated by deletion, and its Machine is not replaced. No other host waits for it, and what looks like
// a member of etcd there is none to others: neither a healthy one, which could make fencing less careful, nor one more,
// which could forbid it for ever. The administrator's word are the other labels, which NodeRestriction lets no kubelet
// set, and the role of a Machine that counts. A cluster is one that labels its control plane if a Node has such a label,
// or had it when an open run began. In any other, what kubelets say counts. // I2, I12

// labelMicroK8s is of the nodes of MicroK8s with a control plane. Kubelets can set it.
const labelMicroK8s = "node.kubernetes.io/microk8s-controlplane"

// isLabelled reports whether a label that no kubelet can set says that the Node is of the control plane.
func (n *Node) isLabelled() bool {
	return n != nil && hasRoleOfAdministrator(n.Labels)
}

// hasRoleOfAdministrator reports whether one of these labels of a Node is one of the control plane that no kubelet can set.
func hasRoleOfAdministrator(labels map[string]string) bool {
	return slices.ContainsFunc(ControlPlaneLabels, func(key string) bool { return key != labelMicroK8s && has(labels, key) })
}

// takesTurn reports whether other hosts of the control plane wait for the run.
func (r OpenRun) takesTurn() bool { return r.ControlPlane && !r.TakesNoTurn }

// isOfAll reports whether a Node is of the control plane to all others, and not only for itself. It may be nil.
func (o *owners) isOfAll(n *Node) bool {
	if n == nil || n.isLabelled() || o.labelled == 0 {
		return n != nil && n.ControlPlane
	}
	return slices.ContainsFunc(o.byNode[n.Name], o.inControlPlane)
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
