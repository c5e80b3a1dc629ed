package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/reason"
)

// countBudget counts the Nodes or Machines of a DisruptionBudget.
func (w *tables) countBudget(b *DisruptionBudget) BudgetReport {
	var n budgetCount
	n.addAll(w, b)
	return n.report(b, b.unseen(w))
}

func (n *budgetCount) addAll(w *tables, b *DisruptionBudget) {
	for _, node := range w.nodes {
		n.addNode(w, b, node, 1)
	}
	for _, m := range w.machines {
		n.addMachine(w, b, m, 1)
	}
}

// budgetCount is how many Nodes or Machines a budget covers, and how many of those
// are unavailable.
type budgetCount struct{ nodes, unavailable int }

// addNode adds a Node to the counts, or removes it: by is 1 or -1.
func (n *budgetCount) addNode(w *tables, b *DisruptionBudget, node *Node, by int) {
	if b.SelectsMachines || !w.targetNodes().selects(b.Selector, node) {
		return
	}
	n.nodes += by
	if w.unavailable(node) {
		n.unavailable += by
	}
}

// report is the budget's report with these counts. unseen is that of DisruptionBudget.
func (n *budgetCount) report(b *DisruptionBudget, unseen int) BudgetReport {
	r := BudgetReport{Name: b.Name, State: StateActive, Limit: b.MaxUnavailable.String()}
	if b.Invalid != "" || b.Selector == nil {
		r.State, r.Message = StateInvalid, b.Invalid
		return r
	}
	r.Nodes, r.Unavailable = n.nodes, n.unavailable
	r.applyLimit(b, unseen)
	return r
}

// applyLimit computes the limit as a number of Nodes. Whether an unseen Node
// matches the selector is unknown, so every budget counts it as unavailable.
func (r *BudgetReport) applyLimit(b *DisruptionBudget, unseen int) {
	r.Nodes += unseen
	r.Unavailable += unseen
	l, err := parseLimit(&b.MaxUnavailable)
	if err != nil {
		r.State, r.Message = StateInvalid, fmt.Sprintf("spec.maxUnavailable: %q is neither a whole number nor a percentage", r.Limit)
		return
	}
	r.MaxUnavailable = l.of(r.Nodes)
}

// unavailable reports whether a Node is not Ready or under remediation.
func (w *tables) unavailable(n *Node) bool {
	return !n.Ready() || w.runs[runSubject{node: n.Name}].ID != ""
}

// unseenNodes counts the Nodes that an open run has deleted, and those that could
// not be decoded.
func (w *tables) unseenNodes() int { return len(unseenNodeNames(w)) + w.unreadAny }

func unseenNodeNames(w *tables) map[string]bool {
	unseen := map[string]bool{}
	for _, r := range w.runs {
		if r.Node != "" && w.nodes[r.Node] == nil {
			unseen[r.Node] = true
		}
	}
	for k := range w.undecoded {
		if k.Kind == "Node" && k.Name != "" {
			unseen[k.Name] = true
		}
	}
	return unseen
}

// refuseBudgets refuses every action that a budget does not allow. It applies the
// budgets in the order of their names, so that the result does not depend on the
// input order.
func (w *tables) refuseBudgets(r *Report, budgets []DisruptionBudget) {
	order := make([]int, len(budgets))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(a, b int) int { return byBudget(&budgets[a], &budgets[b]) })
	for _, k := range order {
		w.refuseBudget(r, &budgets[k], &r.Budgets[k])
	}
}

func byBudget(a, b *DisruptionBudget) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Source, b.Source))
}

// refuseBudget applies one budget. If the budget is exceeded or cannot be
// evaluated, it refuses every target that it covers. A target whose Node is
// already unavailable uses no more of the budget. A target whose Node is still
// available does: the first of these by name are allowed, as many as the budget
// has left.
func (w *tables) refuseBudget(r *Report, b *DisruptionBudget, found *BudgetReport) {
	left := found.MaxUnavailable - found.Unavailable
	var candidates []*TargetReport
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			t := &r.Checks[i].Targets[j]
			covered, available := b.covers(w, t)
			switch {
			case t.Action == None || !covered:
			case found.State != StateActive || left < 0:
				t.refuseBudget(found)
			case b.leavesOut(w, t):
				t.refuse(reason.Budget)
				t.budgets = append(t.budgets, reason.NewGate("budget", false, reason.Budget, machineOfTarget(w, t).foreign(), "counted", DisruptionBudgetKind+" "+b.Name))
			case available:
				candidates = append(candidates, t)
			}
		}
	}
	if len(candidates) == 0 {
		return
	}
	allowed := firstByName(candidates, left)
	for _, t := range candidates {
		if !allowed[t.Node] && len(allowed) >= left {
			t.refuseBudget(found)
		}
	}
}

func (t *TargetReport) refuseBudget(b *BudgetReport) {
	t.refuse(reason.Budget)
	t.budgets = append(t.budgets, b.asGate())
}

// firstByName returns the first limit Nodes by name of the targets that nothing
// else refuses. A target that is refused anyway must not block the others.
func firstByName(targets []*TargetReport, limit int) map[string]bool {
	var names []string
	for _, t := range targets {
		// AlreadyRequested does not block a power cycle: fenced itself carries it
		// out.
		refused := slices.ContainsFunc(t.Refusals, func(r reason.Code) bool { return r != reason.AlreadyRequested || t.Action != PowerCycle })
		if !refused {
			names = append(names, t.Node)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	first := map[string]bool{}
	for _, name := range names[:min(limit, len(names))] {
		first[name] = true
	}
	return first
}

// asGate is the budget as a closed gate.
func (r *BudgetReport) asGate() reason.Gate {
	source := DisruptionBudgetKind + " " + r.Name
	if r.State != StateActive {
		return reason.NewGate("budget", false, reason.Budget, fmt.Sprintf("%s: %s", r.State, r.Message), string(StateActive), source)
	}
	return reason.NewGate("budget", false, reason.Budget, fmt.Sprintf("%d of %d unavailable", r.Unavailable, r.Nodes),
		fmt.Sprintf("at most %d (%s)", r.MaxUnavailable, r.Limit), source)
}

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

// recordAll adds or removes the Machines of one Node.
func (x nodelessIndex) recordAll(machines []*Machine, hasNode bool) {
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
		if r.Machine != "" && r.machineOf(w) == nil {
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
