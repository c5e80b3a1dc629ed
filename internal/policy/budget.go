package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/reason"
)

// countBudget counts the Nodes of a DisruptionBudget.
func (w *tables) countBudget(b *DisruptionBudget) BudgetReport {
	var n budgetCount
	for _, node := range w.nodes {
		n.weigh(w, b, node, 1)
	}
	return n.report(b, w.unseenNodes())
}

// budgetCount is how many Nodes a budget covers, and how many of those are
// unavailable.
type budgetCount struct{ nodes, unavailable int }

// weigh adds a Node to the numbers, or takes it out of them.
func (n *budgetCount) weigh(w *tables, b *DisruptionBudget, node *Node, by int) {
	if b.Selector == nil || !b.Selector.Matches(set(node.Labels)) {
		return
	}
	n.nodes += by
	if w.unavailable(node) {
		n.unavailable += by
	}
}

// report is the budget with these numbers, amid so many unseen Nodes.
func (n *budgetCount) report(b *DisruptionBudget, unseen int) BudgetReport {
	r := BudgetReport{Name: b.Name, State: StateActive, Limit: b.MaxUnavailable.String()}
	if b.Invalid != "" || b.Selector == nil {
		r.State, r.Message = StateInvalid, b.Invalid
		return r
	}
	r.Nodes, r.Unavailable = n.nodes, n.unavailable
	r.conclude(b, unseen)
	return r
}

// conclude applies the limit. Nobody can say whether the unseen Nodes match, so
// they count in every budget, as unavailable.
func (r *BudgetReport) conclude(b *DisruptionBudget, unseen int) {
	r.Nodes += unseen
	r.Unavailable += unseen
	l, err := parseLimit(&b.MaxUnavailable)
	if err != nil {
		r.State, r.Message = StateInvalid, fmt.Sprintf("spec.maxUnavailable: %q is neither a whole number nor a percentage", r.Limit)
		return
	}
	r.MaxUnavailable = l.of(r.Nodes)
}

// unavailable: a Node that is not Ready, or that is being remedied.
func (w *tables) unavailable(n *Node) bool {
	return !n.Ready() || w.runs["Node "+n.Name].ID != ""
}

// unseenNodes counts the Nodes that a run has removed for now, and those that
// could not be decoded.
func (w *tables) unseenNodes() int {
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
	return len(unseen) + w.unreadAny
}

// refuseBudgets lets no more Nodes become unavailable than every budget allows.
// The budgets are asked by name, so that their order never matters.
func (w *tables) refuseBudgets(r *Report, budgets []DisruptionBudget) {
	order := make([]int, len(budgets))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(strings.Compare(budgets[a].Name, budgets[b].Name), strings.Compare(budgets[a].Source, budgets[b].Source))
	})
	for _, k := range order {
		w.refuseBudget(r, &budgets[k], &r.Budgets[k])
	}
}

// refuseBudget refuses what one budget stands against: everything that it
// covers when it is exceeded or cannot be evaluated. A target whose Node is
// down already takes nothing from it; one whose Node still works does, so of
// those only as many go on as there is room for, the first by name.
func (w *tables) refuseBudget(r *Report, b *DisruptionBudget, found *BudgetReport) {
	room := found.MaxUnavailable - found.Unavailable
	var takers []*TargetReport
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			t := &r.Checks[i].Targets[j]
			n := w.nodes[t.Node]
			switch {
			case t.Action == None || n != nil && b.Selector != nil && !b.Selector.Matches(set(n.Labels)):
			case found.State != StateActive || room < 0:
				t.refuseBudget(found)
			case n != nil && !w.unavailable(n):
				takers = append(takers, t)
			}
		}
	}
	if len(takers) == 0 {
		return
	}
	taken := firstByName(takers, room)
	for _, t := range takers {
		if !taken[t.Node] && len(taken) >= room {
			t.refuseBudget(found)
		}
	}
}

func (t *TargetReport) refuseBudget(b *BudgetReport) {
	t.refuse(reason.Budget)
	t.budgets = append(t.budgets, b.gate())
}

// firstByName picks the Nodes of targets that nothing else holds back, so that
// one that is refused anyway does not block the others.
func firstByName(targets []*TargetReport, room int) map[string]bool {
	var names []string
	for _, t := range targets {
		// fenced itself carries out a power cycle that was requested.
		held := slices.ContainsFunc(t.Refusals, func(r reason.Code) bool { return r != reason.AlreadyRequested || t.Action != PowerCycle })
		if !held {
			names = append(names, t.Node)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	first := map[string]bool{}
	for _, name := range names[:min(room, len(names))] {
		first[name] = true
	}
	return first
}

// gate is the budget as something that refuses.
func (r *BudgetReport) gate() reason.Gate {
	source := DisruptionBudgetKind + " " + r.Name
	if r.State != StateActive {
		return reason.NewGate("budget", false, reason.Budget, fmt.Sprintf("%s: %s", r.State, r.Message), string(StateActive), source)
	}
	return reason.NewGate("budget", false, reason.Budget, fmt.Sprintf("%d of %d unavailable", r.Unavailable, r.Nodes),
		fmt.Sprintf("at most %d (%s)", r.MaxUnavailable, r.Limit), source)
}
