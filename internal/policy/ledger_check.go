package policy

import "reflect"

func (l *Ledger) setCheck(id ObjectID, c *Check) {
	k := keyOf(id, "")
	if c != nil {
		k = keyOf(id, c.Source)
	}
	old := l.checks[k]
	switch {
	case old == nil && c == nil:
		return
	case old != nil && c == nil && old.check.APIVersion != id.APIVersion:
		return // it lives on in another version of the API
	case old != nil:
		delete(l.w.machineChecks, old.check.ID())
	}
	if c != nil {
		l.w.putMachineCheck(c)
	}
	switch {
	case old != nil && c != nil && old.check.like(c):
		old.check = c
		return
	case old != nil && c != nil && old.check.selectsLike(c):
		old.check, old.fresh = c, true
	default:
		l.replaceCheck(k, old, c)
	}
	l.stale = true
	l.version++
}

// replaceCheck ends a check and begins another, each of which may be nil.
func (l *Ledger) replaceCheck(k checkKey, old *checkEntry, c *Check) {
	if old != nil {
		for len(old.targets) > 0 {
			l.remove(old.targets[len(old.targets)-1])
		}
		l.resize(old, -old.size) // those that were not kept
		delete(l.checks, k)
	}
	if c != nil {
		e := &checkEntry{check: c, fresh: true}
		l.checks[k] = e
		l.fill(e)
	}
}

// like says whether two versions of a check differ in nothing that is judged:
// our own writing of its status must not make us judge all its targets again.
func (c *Check) like(o *Check) bool {
	a, b := *c, *o
	a.ResourceVersion, b.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// selectsLike says whether two versions of a check select the same.
func (c *Check) selectsLike(o *Check) bool {
	return c.SelectsNodes == o.SelectsNodes && c.family() == o.family() && reflect.DeepEqual(c.Selector, o.Selector)
}

// budgetEntry is a budget with the numbers of its Nodes.
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
		for _, n := range l.w.nodes {
			e.n.weigh(l.w, b, n, 1)
		}
		l.budgets[k] = e
	}
	l.version++
}

// countNode adds a Node to all numbers of the cluster, or takes it out of them.
func (l *Ledger) countNode(n *Node, by int) {
	if n == nil {
		return
	}
	for _, b := range l.budgets {
		b.n.weigh(l.w, b.budget, n, by)
	}
	l.fleet.weigh(n, by)
	if zone := n.Labels[l.w.rules.ZoneKey]; zone != "" {
		f := l.zones[zone]
		f.weigh(n, by)
		l.zones[zone] = f
		if f == (Fleet{}) {
			delete(l.zones, zone)
		}
	}
	switch uuid := plainUUID(n.SystemUUID); {
	case uuid == "":
	case by > 0:
		l.twins[uuid] = append(l.twins[uuid], n.Name)
	default:
		drop(l.twins, uuid, n.Name)
	}
}
