package policy

// A DisruptionBudget that selects Machines counts them whether they have a Node or
// not. One that selects every Node counts the Machines without a Node, too: they
// are missing just as a Node that is down. The labels of a Node that does not
// exist are unknown, so a budget for some of the Nodes does not count them.

// addMachine adds a Machine to the counts of a budget that selects Machines, or
// removes it: by is 1 or -1.
func (n *budgetCount) addMachine(w *tables, b *DisruptionBudget, m *Machine, by int) {
	if !b.SelectsMachines || b.Selector == nil || isLeaving(w, m) || !b.Selector.Matches(set(m.Labels)) || !w.owners().counts(m) {
		return
	}
	n.nodes += by
	if machineUnavailable(w, m) {
		n.unavailable += by
	}
}

// isLeaving reports whether a Machine is being deleted and has no Node any more. Its
// replacement counts in its place.
func isLeaving(w *tables, m *Machine) bool { return m.Deleting && w.nodes[m.NodeName] == nil }

// machineUnavailable reports whether a Machine has no Node, is being deleted or
// under remediation, or its Node is unavailable.
func machineUnavailable(w *tables, m *Machine) bool {
	n := w.nodes[m.NodeName]
	return m.Deleting || n == nil || w.unavailable(n) || w.runs.onMachine(m).ID != ""
}

// nodelessIndex holds the Machines whose Node does not exist.
type nodelessIndex map[machineID]*Machine

// note adds or removes a Machine.
func (x nodelessIndex) note(m *Machine, hasNode bool) {
	if hasNode {
		delete(x, m.id())
	} else {
		x[m.id()] = m
	}
}

// noteAll adds or removes the Machines of one Node.
func (x nodelessIndex) noteAll(machines []*Machine, hasNode bool) {
	for _, m := range machines {
		x.note(m, hasNode)
	}
}

// unseen counts what the budget counts as unavailable although it is not in the
// counts: whether it is selected is unknown.
func (b *DisruptionBudget) unseen(w *tables) int {
	switch {
	case b.SelectsMachines:
		return unseenMachines(w)
	case b.Selector != nil && b.Selector.Empty():
		return w.unseenNodes() + neverSeenNodes(w)
	}
	return w.unseenNodes()
}

// unseenMachines counts the Machines of open runs that do not exist any more, and
// those that could not be decoded.
func unseenMachines(w *tables) int {
	gone := map[string]bool{}
	for _, r := range w.runs {
		if r.Machine != "" && len(w.machinesOf(r)) == 0 {
			gone[r.Machine] = true
		}
	}
	unread := 0
	for _, n := range w.unreadMachines {
		unread += n
	}
	return len(gone) + unread
}

// neverSeenNodes counts the Machines whose Node has not joined or is gone, without
// the Nodes that unseenNodes counts. Both API families may have one of the same
// name.
func neverSeenNodes(w *tables) int {
	counted := unseenNodeNames(w)
	missing := map[string]bool{}
	for _, m := range w.nodeless {
		if !isLeaving(w, m) && w.owners().counts(m) && (m.NodeName == "" || !counted[m.NodeName]) {
			missing[subjectName(m.NodeName, m.Key())] = true
		}
	}
	return len(missing)
}

// covers reports whether the budget may cover a target, and available whether the
// target would use some of it up.
func (b *DisruptionBudget) covers(w *tables, t *TargetReport) (covered, available bool) {
	n := w.nodes[t.Node]
	if !b.SelectsMachines {
		return n == nil || b.Selector == nil || w.targetNodes().selects(b.Selector, n), n != nil && !w.unavailable(n)
	}
	m := machineOfTarget(w, t)
	switch {
	case t.Machine == "":
		return b.Selector == nil, n != nil && !w.unavailable(n)
	case m == nil:
		return true, false
	}
	return b.Selector == nil || b.Selector.Matches(set(m.Labels)), !machineUnavailable(w, m)
}

// leavesOut reports whether the budget would count the Machine of a target that it covers, and does not,
// because nothing shows that it is of this cluster. Any number of these could be acted on at once. // I11
func (b *DisruptionBudget) leavesOut(w *tables, t *TargetReport) bool {
	m := machineOfTarget(w, t)
	return m != nil && w.nodes[t.Node] == nil && (b.SelectsMachines || b.Selector.Empty()) && !w.owners().counts(m)
}

// machineOfTarget returns the Machine of an evaluated target, or nil.
func machineOfTarget(w *tables, t *TargetReport) *Machine {
	namespace, name := splitKey(t.Machine)
	return w.machines[machineID{group(t.MachineAPIVersion), namespace, name}]
}
