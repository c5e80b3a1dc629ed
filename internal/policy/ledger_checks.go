package policy

import (
	"reflect"
	"slices"
	"time"
)

// SetFiles replaces the checks and budgets that come from files, whose Source names the file.
// Those of the cluster stay.
func (l *Ledger) SetFiles(now time.Time, checks []Check, budgets []DisruptionBudget) {
	keep := map[checkKey]bool{}
	for i := range checks {
		keep[keyOf(objectOf(&checks[i]), checks[i].Source)] = true
	}
	for k, e := range l.checks {
		if k.source != "" && !keep[k] {
			delete(l.tables.machineChecks, e.check.ID())
			l.replaceCheck(k, e, nil)
		}
	}
	for k := range l.budgets {
		if k.source != "" {
			delete(l.budgets, k)
		}
	}
	for i := range checks {
		l.setCheck(objectOf(&checks[i]), &checks[i])
	}
	for i := range budgets {
		l.setBudget(ObjectID{APIVersion: FencedAPI, Kind: DisruptionBudgetKind, Name: budgets[i].Name}, &budgets[i])
	}
	l.findSpaces() // a check that went may have had the only template of a namespace
	l.stale = true
	l.version++
	l.enforceTargetLimit()
	l.Advance(now)
}

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
		delete(l.tables.machineChecks, old.check.ID())
	}
	if c != nil && c.family() == openShift {
		l.tables.machineChecks[c.ID()] = c
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

func objectOf(c *Check) ObjectID {
	return ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// findSpaces determines where the requests for every target are, after a change of the templates.
func (l *Ledger) findSpaces() {
	var templates []string
	for _, e := range l.checks {
		templates = append(templates, templateSpaces(e.check)...)
	}
	if spaces := l.tables.rules.commonSpaces(templates); !slices.Equal(spaces, l.tables.requests.spaces) {
		l.tables.requests.spaces, l.full = spaces, true
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
		e.n.addAll(l.tables, b)
		l.budgets[k] = e
	}
	l.version++
}

// countMachine adds a Machine to the counts of all budgets, or removes it: by is 1
// or -1.
func (l *Ledger) countMachine(m *Machine, by int) {
	for _, b := range l.budgets {
		b.n.addMachine(l.tables, b.budget, m, by)
	}
}

// countNode adds a Node to all counters of the cluster, or removes it: by is 1 or
// -1.
func (l *Ledger) countNode(n *Node, by int) {
	if n == nil {
		return
	}
	for _, b := range l.budgets {
		b.n.addNode(l.tables, b.budget, n, by)
	}
	l.fleet.addNode(n, by)
	if zone := n.Labels[l.tables.rules.ZoneKey]; zone != "" {
		f := l.zones[zone]
		f.addNode(n, by)
		l.zones[zone] = f
		if f == (Fleet{}) {
			delete(l.zones, zone)
		}
	}
}

// add makes a Machine or a Node a target of the check, unless the target limit is
// exceeded.
func (l *Ledger) add(c *checkEntry, m *Machine, node string) {
	l.resize(c, 1)
	if l.tables.overTargetLimit.includes(&l.tables.rules, c.check) {
		return
	}
	e := &targetEntry{check: c, machine: m, node: node, at: int32(len(c.targets)), clock: noClock}
	c.targets = append(c.targets, e)
	if m != nil {
		l.onMachine[m.Name] = append(l.onMachine[m.Name], e)
	}
	if node != "" {
		l.onNode[node] = append(l.onNode[node], e)
	}
	l.touch(e)
	c.recount = true
	l.version++
}

// remove removes a target from its check.
func (l *Ledger) remove(e *targetEntry) {
	l.setReport(e, false, nil)
	c := e.check
	l.resize(c, -1)
	last := c.targets[len(c.targets)-1]
	c.targets[e.at], last.at = last, e.at
	c.targets[len(c.targets)-1] = nil
	c.targets = c.targets[:len(c.targets)-1]
	if e.machine != nil {
		drop(l.onMachine, e.machine.Name, e)
	}
	drop(l.onNode, e.node, e)
	e.gone = true
	c.recount = true
	l.version++
}

// addTargets finds all targets of a new check.
func (l *Ledger) addTargets(c *checkEntry) {
	for m, n := range l.tables.covered(c.check) {
		if m != nil {
			l.add(c, m, m.NodeName)
		} else {
			l.add(c, nil, n.Name)
		}
	}
}

// setCovered adds or removes a target after a change of coverage. e is the
// existing target, nil if it was not kept.
func (l *Ledger) setCovered(c *checkEntry, e *targetEntry, was, covered bool, m *Machine, node string) {
	switch {
	case !was && covered:
		l.add(c, m, node)
	case was && !covered && e != nil:
		l.remove(e)
	case was && !covered:
		l.resize(c, -1)
	}
}

// find returns the target of a check in a list: the Machine, or if that is nil the Node.
func find(list []*targetEntry, c *checkEntry, m *Machine) *targetEntry {
	if i := slices.IndexFunc(list, func(e *targetEntry) bool { return e.check == c && e.machine == m }); i >= 0 {
		return list[i]
	}
	return nil
}

// nodeCoverage says which checks cover a Node.
type nodeCoverage struct {
	node   string
	checks map[*checkEntry]bool
}

// coverageOf returns the checks that cover a Node now.
func (l *Ledger) coverageOf(node string) nodeCoverage {
	v := nodeCoverage{node: node, checks: map[*checkEntry]bool{}}
	n := l.tables.targetNode(node)
	if n == nil {
		return v
	}
	seen := l.tables.targetLabels(n)
	for _, c := range l.checks {
		if c.check.SelectsNodes && seen.match(c.check.Selector) {
			v.checks[c] = true
		}
	}
	return v
}

// cover adds and removes targets after a change of a Node, or of the run on it. before is its
// coverage before the change.
func (l *Ledger) cover(before nodeCoverage) {
	after := l.coverageOf(before.node)
	for c := range before.checks {
		l.setCovered(c, find(l.onNode[before.node], c, nil), true, after.checks[c], nil, before.node)
	}
	for c := range after.checks {
		l.setCovered(c, find(l.onNode[before.node], c, nil), before.checks[c], true, nil, before.node)
	}
}
