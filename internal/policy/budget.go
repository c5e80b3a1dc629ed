package policy

import "fmt"

// countBudget counts the Nodes of a DisruptionBudget. A Node that a run has
// removed for now cannot be matched any more; it counts in every budget.
func (w *tables) countBudget(b *DisruptionBudget) BudgetReport {
	r := BudgetReport{Name: b.Name, State: StateActive}
	if b.Invalid != "" || b.Selector == nil {
		r.State, r.Message = StateInvalid, b.Invalid
		return r
	}
	for _, n := range w.nodes {
		if b.Selector.Matches(set(n.Labels)) {
			r.Nodes++
			if w.unavailable(n) {
				r.Unavailable++
			}
		}
	}
	r.conclude(b, w.absentRuns())
	return r
}

// conclude applies the limit; absent are Nodes that a run has removed for now.
func (r *BudgetReport) conclude(b *DisruptionBudget, absent int) {
	r.Nodes += absent
	r.Unavailable += absent
	l, err := parseLimit(&b.MaxUnavailable)
	if err != nil {
		r.State, r.Message = StateInvalid, fmt.Sprintf("spec.maxUnavailable: %q is neither a whole number nor a percentage", b.MaxUnavailable.String())
		return
	}
	r.MaxUnavailable = l.of(r.Nodes)
}

// unavailable: a Node that is not Ready, or that is being remedied.
func (w *tables) unavailable(n *Node) bool {
	return !n.Ready() || w.runs["Node "+n.Name].ID != ""
}

// absentRuns counts the open runs whose Node is not there.
func (w *tables) absentRuns() int {
	absent := map[string]bool{}
	for _, r := range w.runs {
		if r.Node != "" && w.nodes[r.Node] == nil {
			absent[r.Node] = true
		}
	}
	return len(absent)
}

// refuseBudgets refuses what a budget that is exceeded, or that cannot be
// evaluated, stands against. A target without a Node may belong to any budget.
func (w *tables) refuseBudgets(r *Report, budgets []DisruptionBudget) {
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			t := &r.Checks[i].Targets[j]
			if t.Action == None {
				continue
			}
			n := w.nodes[t.Node]
			for k := range budgets {
				b, report := &budgets[k], &r.Budgets[k]
				covered := n == nil || b.Selector == nil || b.Selector.Matches(set(n.Labels))
				if covered && (report.State != StateActive || report.Unavailable > report.MaxUnavailable) {
					t.refuse(Budget)
				}
			}
		}
	}
}
