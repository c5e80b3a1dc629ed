package policy

import (
	"fmt"
	"slices"
)

// Member is one etcd member: healthy means that its Pod is Ready on a Ready Node.
type Member struct {
	Node    string
	Healthy bool
}

// Quorum says whether etcd survives the loss of the member on a Node; an empty
// reason means that it does. The target counts as a member even if none was
// seen on it. // I12
func Quorum(members []Member, node string, rules Rules) (Reason, string) {
	switch {
	case rules.ControlPlaneNever:
		return ControlPlane, "guards.controlPlane is never"
	case rules.ExternalEtcd:
		return "", "etcd runs elsewhere"
	case len(members) == 0:
		return QuorumUnknown, "no etcd member is seen"
	}
	healthy := map[string]bool{node: false} // by Node; of several Pods there each must be
	for _, m := range members {
		before, seen := healthy[m.Node]
		healthy[m.Node] = m.Healthy && (before || !seen)
	}
	size, others := len(healthy), 0
	for name, well := range healthy {
		if well && name != node {
			others++
		}
	}
	need := size/2 + 1
	message := fmt.Sprintf("%d of %d members are healthy without it, %d are needed", others, size, need)
	if others < need {
		return QuorumLost, message
	}
	return "", message
}

// members are the etcd members that the tables show; false when one of them
// may be among what could not be decoded.
func (w *tables) members() ([]Member, bool) {
	if w.unreadEtcd > 0 || w.unreadAny > 0 {
		return nil, false
	}
	var list []Member
	for _, p := range w.etcd {
		n := w.nodes[p.Node]
		list = append(list, Member{Node: p.Node, Healthy: p.Ready && n != nil && n.Ready()})
	}
	if len(list) == 0 && w.rules.NodesStandIn {
		list = w.standIns()
	}
	return list, true
}

// standIns are the Nodes of control-plane hosts in place of their etcd members.
func (w *tables) standIns() []Member {
	var list []Member
	for _, n := range w.nodes {
		role := slices.ContainsFunc(w.byNode[n.Name], func(m *Machine) bool { return m.ControlPlane })
		if n.ControlPlane || role {
			list = append(list, Member{Node: n.Name, Healthy: n.Ready()})
		}
	}
	return list
}

// guardControlPlane lets at most one control-plane host be remedied at a time,
// and none whose loss etcd would not survive. // I12
func (w *tables) guardControlPlane(r *Report) {
	var waiting []*TargetReport
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			if t := &r.Checks[i].Targets[j]; t.ControlPlane && (t.Action == PowerCycle || t.Action == CreateRequest) {
				waiting = append(waiting, t)
			}
		}
	}
	if len(waiting) == 0 {
		return
	}
	members, known := w.members()
	for _, t := range waiting {
		reason, _ := Quorum(members, t.Node, w.rules)
		if !known && reason != ControlPlane {
			reason = QuorumUnknown
		}
		if reason != "" {
			t.refuse(reason)
		}
	}
	holder := w.controlPlaneInFlight()
	if len(holder) == 0 {
		if first := firstInLine(waiting); first != "" {
			holder = map[string]bool{first: true}
		}
	}
	for _, t := range waiting {
		if len(holder) > 1 || len(holder) == 1 && !holder[t.subject()] {
			t.refuse(ControlPlaneBusy)
		}
	}
}

// controlPlaneInFlight lists the control-plane targets that are being remedied
// or whose remediation has been requested.
func (w *tables) controlPlaneInFlight() map[string]bool {
	busy := map[string]bool{}
	hold := func(m *Machine) {
		n := w.nodes[m.NodeName]
		if m.ControlPlane || n != nil && n.ControlPlane {
			busy[subjectName(m.NodeName, m.Key())] = true
		}
	}
	for _, m := range w.asked {
		hold(m)
	}
	for _, r := range w.runs {
		for _, m := range w.machinesOf(r) {
			hold(m)
		}
		if n := w.nodes[r.Node]; n != nil && n.ControlPlane {
			busy[n.Name] = true
		}
	}
	for _, list := range w.requests {
		for _, q := range list {
			n := w.nodes[q.about()] // what a person or an old operator made has no label
			if q.ControlPlane || n != nil && n.ControlPlane {
				busy[q.about()] = true
			}
		}
	}
	return busy
}

// firstInLine is the first target by name that nothing holds back, or else that
// only its quorum holds back; a target that is refused anyway must not block
// the others.
func firstInLine(waiting []*TargetReport) string {
	first, free := "", false
	for _, t := range waiting {
		refused := slices.ContainsFunc(t.Refusals, func(r Reason) bool { return r != QuorumUnknown && r != QuorumLost })
		open := len(t.Refusals) == 0
		if !refused && (first == "" || open && !free || open == free && t.subject() < first) {
			first, free = t.subject(), open
		}
	}
	return first
}

// subject names what is remedied, the same under every check: the Node, or the
// Machine while it has none.
func (t *TargetReport) subject() string { return subjectName(t.Node, t.Machine) }

func subjectName(node, machine string) string {
	if node != "" {
		return node
	}
	return machine
}
