package policy

import (
	"reflect"
	"slices"
)

// setSeated sets or removes a check that is evaluated.
func (l *Ledger) setSeated(id ObjectID, c *Check) {
	k := keyOf(id, "")
	if c != nil {
		k = keyOf(id, c.Source)
	}
	old := l.checks[k]
	hadTemplates := old != nil && len(templateSpaces(old.check)) > 0
	switch {
	case old == nil && c == nil:
		return
	case old != nil && c == nil && old.check.APIVersion != id.APIVersion:
		return // it still exists in another version of the API
	case old != nil:
		delete(l.w.machineChecks, old.check.ID())
	}
	if c != nil {
		l.w.putMachineCheck(c)
	}
	switch {
	case old != nil && c != nil && old.check.equalsExceptVersion(c):
		old.check = c
		return
	case old != nil && c != nil && old.check.selectsSame(c):
		old.check, old.fresh = c, true
	default:
		l.replaceCheck(k, old, c)
	}
	if hadTemplates || c != nil && len(templateSpaces(c)) > 0 {
		l.findSpaces()
	}
	l.stale = true
	l.version++
}

// findSpaces determines where the requests for every target are, after a change of the templates.
func (l *Ledger) findSpaces() {
	var templates []string
	for _, e := range l.checks {
		templates = append(templates, templateSpaces(e.check)...)
	}
	if spaces := l.w.rules.commonSpaces(templates); !slices.Equal(spaces, l.w.requests.spaces) {
		l.w.requests.spaces, l.full = spaces, true
	}
}

// replaceCheck removes old and adds c, each of which may be nil.
func (l *Ledger) replaceCheck(k checkKey, old *checkEntry, c *Check) {
	if old != nil {
		for len(old.targets) > 0 {
			l.remove(old.targets[len(old.targets)-1])
		}
		l.resize(old, -old.size) // those over the target limit
		delete(l.checks, k)
	}
	if c != nil {
		e := &checkEntry{check: c, fresh: true}
		l.checks[k] = e
		l.addTargets(e)
	}
}

// equalsExceptVersion reports whether two versions of a check differ only in what
// is not evaluated. fenced's own writes of its status must not cause an
// evaluation of all its targets.
func (c *Check) equalsExceptVersion(o *Check) bool {
	a, b := *c, *o
	a.ResourceVersion, b.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// selectsSame reports whether two versions of a check have the same selector.
func (c *Check) selectsSame(o *Check) bool {
	return c.SelectsNodes == o.SelectsNodes && c.family() == o.family() && reflect.DeepEqual(c.Selector, o.Selector)
}

// budgetEntry is a budget with the counts of its Nodes or Machines.
type budgetEntry struct {
	budget *DisruptionBudget
	n      budgetCount
}

func (l *Ledger) setBudget(id ObjectID, b *DisruptionBudget) {
	k := keyOf(id, "")
	if b != nil {
		k = keyOf(id, b.Source)
	}
	delete(l.budgets, k)
	if b != nil {
		e := &budgetEntry{budget: b}
		e.n.addAll(l.w, b)
		l.budgets[k] = e
	}
	l.version++
}

// countMachine adds a Machine to the counts of all budgets, or removes it: by is 1
// or -1.
func (l *Ledger) countMachine(m *Machine, by int) {
	for _, b := range l.budgets {
		b.n.addMachine(l.w, b.budget, m, by)
	}
}

// countMachinesOf does that with the Machines of a Node.
func (l *Ledger) countMachinesOf(node string, by int) {
	for _, m := range l.w.byNode[node] {
		l.countMachine(m, by)
	}
}

// countNode adds a Node to all counters of the cluster, or removes it: by is 1 or
// -1.
func (l *Ledger) countNode(n *Node, by int) {
	if n == nil {
		return
	}
	for _, b := range l.budgets {
		b.n.addNode(l.w, b.budget, n, by)
	}
	l.fleet.addNode(n, by)
	if zone := n.Labels[l.w.rules.ZoneKey]; zone != "" {
		f := l.zones[zone]
		f.addNode(n, by)
		l.zones[zone] = f
		if f == (Fleet{}) {
			delete(l.zones, zone)
		}
	}
}
