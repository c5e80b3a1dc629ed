package policy

import (
	"slices"

	"github.com/fenced/fenced/internal/reason"
)

// guardControlPlane lets at most one control-plane host be remedied at a time,
// and none whose loss etcd would not survive. // I12
func (w *tables) guardControlPlane(r *Report) {
	var waiting []*TargetReport
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			if t := &r.Checks[i].Targets[j]; t.ControlPlane && w.takesMember(t.Action) {
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
	holder := w.controlPlaneInFlight()
	if len(holder) == 0 {
		if first := firstInLine(waiting); first != "" {
			holder = map[string]bool{first: true}
		}
	}
	for _, t := range waiting {
		if len(holder) > 1 || len(holder) == 1 && !holder[t.subject()] {
			t.refuse(reason.ControlPlaneBusy)
		}
	}
}

// takesMember says whether the action takes an etcd member away and nobody else
// looks after the quorum. A deletion that the administrator has not allowed for
// control planes is refused anyway.
func (w *tables) takesMember(a Action) bool {
	return a == PowerCycle || a == CreateRequest || a == DeleteMachine && w.rules.DeleteControlPlaneMachines
}

// controlPlaneInFlight lists the control-plane targets that are being remedied
// or replaced, or whose remediation has been requested.
func (w *tables) controlPlaneInFlight() map[string]bool {
	busy := map[string]bool{}
	hold := func(m *Machine) {
		n := w.nodes[m.NodeName]
		if m.ControlPlane || n != nil && n.ControlPlane {
			busy[subjectName(m.NodeName, m.Key())] = true
		}
	}
	for _, m := range w.inHand {
		hold(m)
	}
	for _, r := range w.runs {
		if r.ControlPlane { // its Node may be away, by our own doing
			busy[subjectName(r.Node, r.Machine)] = true
		}
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
		refused := slices.ContainsFunc(t.Refusals, func(r reason.Code) bool { return r != reason.QuorumUnknown && r != reason.QuorumLost })
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
