package policy

import (
	"fmt"
	"maps"

	"github.com/fenced/fenced/internal/reason"
)

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
	if len(list) == 0 && w.rules.NodesCountAsMembers {
		list = w.membersFromNodes()
	}
	return list, true
}

// controlPlaneSize is the number of control-plane hosts that may have a member of etcd: the larger of the number
// of their Machines and of their Nodes, including those that a run has deleted.
func (w *tables) controlPlaneSize() int {
	may := mayHaveMember(w)
	machines := map[string]map[string]bool{} // by cluster: the Nodes are of one
	note := func(m *Machine) {
		if !w.owners().inControlPlane(m) || !may(m.NodeName) {
			return
		}
		in := key(m.Namespace, m.ClusterName)
		if machines[in] == nil {
			machines[in] = map[string]bool{}
		}
		machines[in][subjectName(m.NodeName, m.Key())] = true // both API families may have it
	}
	for _, m := range w.machinesWithRole {
		note(m)
	}
	for name := range w.nodesWithRole {
		for _, m := range w.byNode[name] {
			note(m)
		}
	}
	nodes := map[string]bool{}
	for name := range w.controlPlaneNodes() {
		nodes[name] = may(name)
	}
	for _, r := range w.runs {
		if r.ControlPlane && r.Node != "" {
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

// ControlPlaneSize is the known number of control-plane hosts that may have a member of etcd, for Quorum.
func (l *Ledger) ControlPlaneSize() int { return l.w.controlPlaneSize() }

// membersFromNodes returns the Nodes of control-plane hosts in place of their
// etcd members.
func (w *tables) membersFromNodes() []Member {
	var list []Member
	may := mayHaveMember(w)
	for _, n := range w.controlPlaneNodes() {
		if may(n.Name) {
			list = append(list, Member{Node: n.Name, Healthy: n.Ready()})
		}
	}
	return list
}

// controlPlaneNodes returns the Nodes of control-plane hosts, by the role of the
// Node or of its Machine.
func (w *tables) controlPlaneNodes() map[string]*Node {
	all := maps.Clone(w.nodesWithRole)
	for _, m := range w.machinesWithRole {
		if n := w.nodes[m.NodeName]; n != nil && w.owners().inControlPlane(m) {
			all[n.Name] = n
		}
	}
	return all
}
