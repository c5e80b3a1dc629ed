package policy

import (
	"slices"

	"github.com/fenced/fenced/internal/reason"
)

// guardControlPlane lets at most one control-plane host at a time be remediated,
// and none whose loss would cost etcd its quorum. // I12
func (w *tables) guardControlPlane(r *Report) {
	var waiting []*TargetReport
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			if t := &r.Checks[i].Targets[j]; t.ControlPlane && w.removesEtcdMember(t.Action) {
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
		if first := firstInLine(waiting); first != "" {
			inFlight = map[string]bool{first: true}
		}
	}
	for _, t := range waiting {
		if len(inFlight) > 1 || len(inFlight) == 1 && !inFlight[t.Subject()] {
			t.refuse(reason.ControlPlaneBusy)
		}
	}
}

// removesEtcdMember reports whether the action removes an etcd member and no
// other controller protects the quorum. Deleting a control-plane Machine is
// refused elsewhere unless the administrator allowed it.
func (w *tables) removesEtcdMember(a Action) bool {
	return a == PowerCycle || a == CreateRequest || a == DeleteMachine && w.rules.DeleteControlPlaneMachines
}

// controlPlaneInFlight lists the control-plane targets that are under remediation
// or being replaced, or whose remediation has been requested.
func (w *tables) controlPlaneInFlight() map[string]bool {
	busy := map[string]bool{}
	mark := func(m *Machine) {
		if w.owners().inControlPlane(m) {
			busy[subjectName(m.NodeName, m.Key())] = true
		}
	}
	for _, m := range w.underRemediation {
		mark(m)
	}
	for _, r := range w.runs {
		if r.ControlPlane { // a run may itself have deleted its Node
			busy[subjectName(r.Node, r.Machine)] = true
		}
		for _, m := range w.machinesOf(r) {
			mark(m)
		}
		if n := w.nodes[r.Node]; n != nil && n.ControlPlane {
			busy[n.Name] = true
		}
	}
	for at, list := range w.requests.byPlace {
		n := w.nodes[at.target] // a request that a person or an old operator made has no label
		for _, q := range list {
			if q.Power != nil && !q.Power.FinalizerElsewhere {
				continue // fenced carries it out, one at a time: its run counts, and not an object that stays behind
			}
			if (q.ControlPlane || n != nil && n.ControlPlane) && w.requests.mayBeFor(q, machineBeside(w, q), n) {
				busy[at.target] = true
			}
		}
	}
	return busy
}

// machineBeside returns a Machine of the control plane that a request may be for: it has the
// name, and is in the namespace, of the request.
func machineBeside(w *tables, q *Request) *Machine {
	for _, g := range machineGroups {
		if m := w.machines[machineID{g, q.Namespace, q.targetName()}]; m != nil && w.isBeside(q, m) && w.owners().inControlPlane(m) {
			return m
		}
	}
	return nil
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

// Subject names the target, the same in every check: the Node, or the Machine
// "namespace/name" while it has no Node.
func (t *TargetReport) Subject() string { return subjectName(t.Node, t.Machine) }

func subjectName(node, machine string) string {
	if node != "" {
		return node
	}
	return machine
}
