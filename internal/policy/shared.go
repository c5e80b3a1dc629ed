package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/reason"
)

// claim is the result of one check for a target.
type claim struct {
	check  *CheckReport
	target *TargetReport
	// doubtful: the check is in doubt, and the providerID of the Node does not show that it is another Machine's.
	doubtful bool
}

// refuseOverlaps resolves conflicts where several checks cover one target: the
// most restrictive check wins. A closed gate of one check closes it for all. A
// check that only counts forbids every action. Of two actions the gentler one is
// allowed. A check in doubt might have asked for the gentlest action, or asks another
// remediator already.
// A Machine that does not own its Node is a target of its own, and so is one on a management API apart that
// has the name of another.
func (w *tables) refuseOverlaps(r *Report) {
	claims := map[string][]claim{}
	for i := range r.Checks {
		c := &r.Checks[i]
		for j := range c.Targets {
			t := &c.Targets[j]
			of, m, n := t.Subject(), machineOfTarget(w, t), w.nodes[t.Node]
			switch {
			case m != nil && t.Node != "" && w.Owns(m, n):
			case m != nil:
				of += " of " + w.rules.spaceOf(m.Group(), m.Namespace).text() + "/" + m.Name
			}
			disproved := m != nil && n != nil && n.ProviderID != "" && !sameProvider(m.ProviderID, n.ProviderID)
			claims[of] = append(claims[of], claim{c, t, t.isDoubtful() && !disproved})
		}
	}
	for _, group := range claims {
		if len(group) > 1 {
			refuseConflicting(group)
		}
	}
}

func refuseConflicting(group []claim) {
	gentlest, closed, countOnly, handedOver := severity[DeleteMachine], false, false, false
	doubts := firstOfEach(group, 1, func(g claim) (*CheckReport, bool) { return g.check, g.doubtful })
	for _, g := range group {
		closed = closed || !g.check.Allowed
		countOnly = countOnly || g.check.countOnly
		handedOver = handedOver || g.target.isHandedOver()
		if g.target.Action != None {
			gentlest = min(gentlest, severity[g.target.Action])
		}
	}
	for _, g := range group {
		if g.target.Action == None {
			continue
		}
		if countOnly || closed && g.check.Allowed || handedOver && !g.target.isHandedOver() || severity[g.target.Action] > gentlest || g.doubtedBy(doubts) {
			g.target.refuse(reason.Overlap)
		}
	}
	oneRequest(group)
	stricter := firstOfEach(group, maxOverlapGates+1, claim.strictness)
	for _, g := range group {
		if slices.Contains(g.target.Refusals, reason.Overlap) {
			g.target.overlaps = g.overlapGates(stricter)
		}
	}
}

// maxOverlapGates is how many checks a refusal names. One target may have as many checks as the
// target limit allows, and each of them could name all others.
const maxOverlapGates = 4

// firstOfEach returns the first claims of each kind, in their order.
func firstOfEach[K comparable](group []claim, most int, kind func(claim) (K, bool)) (list []claim) {
	found := map[K]int{}
	for _, g := range group {
		if k, ok := kind(g); ok && found[k] < most {
			found[k]++
			list = append(list, g)
		}
	}
	return list
}

type strictness struct {
	countOnly, allowed, handedOver, doubtful bool
	action                                   Action
}

// strictness says what of a claim may refuse the actions of others; claims that have the same refuse the same.
func (g claim) strictness() (kind strictness, ok bool) {
	kind = strictness{g.check.countOnly, g.check.Allowed, g.target.isHandedOver(), g.doubtful, g.target.Action}
	return kind, kind.countOnly || !kind.allowed || kind.handedOver || kind.doubtful || kind.action != None
}

// overlapGates names checks of a group that refuse the action of one of them.
func (g claim) overlapGates(stricter []claim) (gates []reason.Gate) {
	for _, o := range stricter {
		if o.check == g.check {
			continue
		}
		if len(gates) == maxOverlapGates {
			break
		}
		if why := o.overlapReason(g.target); why != "" {
			gates = append(gates, reason.NewGate("overlap", false, reason.Overlap, why, "no stricter check", o.check.source()))
		}
	}
	return gates
}

// isDoubtful: the check cannot determine the Node of the target, or its Machine.
func (t *TargetReport) isDoubtful() bool {
	return t.Verdict == Indeterminate && (t.Reason == reason.Undecodable || t.Reason == reason.NodeMismatch)
}

// doubtedBy: another check is in doubt about the same host, maybe under the name of another Machine. It might
// have asked for a power cycle, so nothing more severe is done.
func (g claim) doubtedBy(doubts []claim) bool {
	return g.target.Action != PowerCycle && slices.ContainsFunc(doubts, func(o claim) bool { return o.check != g.check })
}

// isHandedOver: the check has already handed the target to another remediator,
// which may be at work, also where the check is in doubt now. // I22
func (t *TargetReport) isHandedOver() bool {
	return t.handedOver || t.Action != PowerCycle && slices.Contains(t.Refusals, reason.AlreadyRequested)
}

// oneRequest lets only the first of several NodeHealthChecks request the
// remediation of a Node: two remediators must not work on it at the same time.
// The other API families name a request after its Machine, so a second check
// finds the first request.
func oneRequest(group []claim) {
	requested := false
	for _, g := range group {
		if g.check.Kind != NodeHealthCheckKind || g.target.Action != CreateRequest || len(g.target.Refusals) > 0 {
			continue
		}
		if requested {
			g.target.refuse(reason.Overlap)
		}
		requested = true
	}
}

// severity orders the actions. A power cycle keeps the disks. A request leaves
// the choice to another controller. An owner applies limits of its own. A
// deletion is final.
var severity = map[Action]int{PowerCycle: 1, CreateRequest: 2, MarkOwner: 3, DeleteMachine: 4}

// overlapReason returns why the result of a check for a target refuses the action
// of another check, "" if it does not.
func (g claim) overlapReason(t *TargetReport) string {
	r, o := g.check, g.target
	switch {
	case o.Subject() != t.Subject():
		return ""
	case r.countOnly:
		return "this check only counts"
	case !r.Allowed:
		return "the limit of this check is exceeded"
	case o.isHandedOver():
		return "this check has asked another remediator already"
	case g.doubtful && t.Action != PowerCycle:
		return "this check is in doubt, and might ask for a power cycle: " + o.Message
	case o.Action != None && severity[o.Action] < severity[t.Action]:
		return fmt.Sprintf("this check asks for %s, which is gentler than %s", o.Action, t.Action)
	case o.Action == CreateRequest && t.Action == CreateRequest:
		return "this check asks first"
	}
	return ""
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
	if b.SelectsMachines || !w.targetLabels(node).match(b.Selector) {
		return
	}
	n.nodes += by
	if w.unavailable(node) {
		n.unavailable += by
	}
}

// report is the budget's report with these counts. Whether one of the unseen matches the selector is
// unknown, so every budget counts it as unavailable.
func (n *budgetCount) report(b *DisruptionBudget, unseen int) BudgetReport {
	r := BudgetReport{Name: b.Name, State: StateActive, Limit: b.MaxUnavailable.String()}
	if b.Invalid != "" || b.Selector == nil {
		r.State, r.Message = StateInvalid, b.Invalid
		return r
	}
	r.Nodes, r.Unavailable = n.nodes+unseen, n.unavailable+unseen
	l, err := parseLimit(&b.MaxUnavailable)
	if err != nil {
		r.State, r.Message = StateInvalid, fmt.Sprintf("spec.maxUnavailable: %q is neither a whole number nor a percentage", r.Limit)
		return r
	}
	r.MaxUnavailable = l.of(r.Nodes)
	return r
}

// unavailable reports whether a Node is not Ready or under remediation.
func (w *tables) unavailable(n *Node) bool {
	return !n.Ready() || w.runs[runSubject{node: n.Name}].ID != ""
}

// unseenNodeNames are the Nodes that an open run has deleted, and those that could not be decoded.
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
	if !b.SelectsMachines || b.Selector == nil || isLeaving(w, m) || !b.Selector.Matches(labels.Set(m.Labels)) || !w.counts(m) {
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

// unseen counts what the budget counts as unavailable although it is not in the
// counts: whether it is selected is unknown.
func (b *DisruptionBudget) unseen(w *tables) int {
	if b.SelectsMachines {
		return unseenMachines(w)
	}
	unseen := len(unseenNodeNames(w)) + w.unreadAny
	if b.Selector != nil && b.Selector.Empty() {
		unseen += neverSeenNodes(w)
	}
	return unseen
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
// those in unseenNodeNames. Both API families may have one of the same
// name.
func neverSeenNodes(w *tables) int {
	counted := unseenNodeNames(w)
	missing := map[string]bool{}
	for _, m := range w.nodeless {
		if !isLeaving(w, m) && w.counts(m) && (m.NodeName == "" || !counted[m.NodeName]) {
			missing[cmp.Or(m.NodeName, m.Key())] = true
		}
	}
	return len(missing)
}

// covers reports whether the budget may cover a target, and available whether the
// target would use some of it up.
func (b *DisruptionBudget) covers(w *tables, t *TargetReport) (covered, available bool) {
	n := w.nodes[t.Node]
	if !b.SelectsMachines {
		return n == nil || b.Selector == nil || w.targetLabels(n).match(b.Selector), n != nil && !w.unavailable(n)
	}
	m := machineOfTarget(w, t)
	switch {
	case t.Machine == "":
		return b.Selector == nil, n != nil && !w.unavailable(n)
	case m == nil:
		return true, false
	}
	return b.Selector == nil || b.Selector.Matches(labels.Set(m.Labels)), !machineUnavailable(w, m)
}

// leavesOut reports whether the budget would count the Machine of a target that it covers, and does not,
// because nothing shows that it is of this cluster. Any number of these could be acted on at once. // I11
func (b *DisruptionBudget) leavesOut(w *tables, t *TargetReport) bool {
	m := machineOfTarget(w, t)
	return m != nil && w.nodes[t.Node] == nil && (b.SelectsMachines || b.Selector.Empty()) && !w.counts(m)
}

// machineOfTarget returns the Machine of an evaluated target, or nil.
func machineOfTarget(w *tables, t *TargetReport) *Machine {
	namespace, name := splitKey(t.Machine)
	return w.machines[machineID{group(t.MachineAPIVersion), namespace, name}]
}
