package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report returns what Decide returns for the Snapshot.
func (l *Ledger) Report(now time.Time) Report {
	all := map[*checkEntry][]*targetEntry{}
	now = l.Advance(now)
	for _, c := range l.checks {
		all[c] = c.targets
	}
	return l.report(all, now)
}

// Coverage returns what every check and budget selects and allows.
func (l *Ledger) Coverage(now time.Time) []Coverage {
	r := l.Report(now)
	budgets := make([]DisruptionBudget, 0, len(l.budgets)) // in the order of the report
	for _, b := range l.sortedBudgets() {
		budgets = append(budgets, *b.budget)
	}
	return Cover(r, l.allChecks(), budgets, l.tables.nodes)
}

// Overview is what a Report shows at a glance: without the targets that are healthy and nothing else, of which it has only the names.
type Overview struct {
	Report
	Protected []Protected
	// Slips are, by check, what is said of a rule for a condition that no Node has, and that is nearly one that some have.
	Slips map[CheckID]string
}

// Protected is a check that has something remediated, and the targets that it covers: Nodes by name, and Machines without one by "namespace/name".
type Protected struct {
	Check           CheckID
	NeedsHosts      bool
	Nodes, Machines []string
}

// Overview returns the Overview. Apart from the names, and from a rule for a condition that no Node has, its cost grows with the targets that are not healthy.
func (l *Ledger) Overview(now time.Time) Overview {
	now = l.Advance(now)
	some, entries := l.involved(""), map[CheckID]*checkEntry{}
	for _, c := range l.checks {
		entries[c.check.ID()] = c
		list := slices.DeleteFunc(some[c], func(e *targetEntry) bool { return e.report != nil }) // the others come next
		for _, e := range c.targets {
			if e.report != nil {
				list = append(list, e)
			}
		}
		some[c] = list
	}
	o := Overview{Report: l.report(some, now), Slips: map[CheckID]string{}}
	types := l.typesIfAnyIsMissing()
	for i := range o.Checks {
		k := &o.Checks[i]
		c := entries[k.ID()]
		if k.Protects() {
			o.Protected = append(o.Protected, c.protected(k))
		}
		if k.State == StateActive && len(types) > 0 {
			v := Coverage{}
			v.examineTypes(c.check.Conditions, types)
			if slip := slices.IndexFunc(v.Findings, func(f Finding) bool { return f.Warning }); slip >= 0 {
				o.Slips[k.ID()] = v.Findings[slip].Message
			}
		}
	}
	return o
}

// typesIfAnyIsMissing returns conditionTypes, or none if the Nodes have conditions of every type that a rule of a check names.
func (l *Ledger) typesIfAnyIsMissing() []string {
	named := map[string]bool{}
	for _, c := range l.checks {
		for _, u := range c.check.Conditions {
			named[u.Type] = true
		}
	}
	if someHave(l.tables.nodes, named) {
		return nil
	}
	return conditionTypes(l.tables.nodes)
}

// protected lists what a check covers. A target that it skips is not covered.
func (c *checkEntry) protected(k *CheckReport) Protected {
	p := Protected{Check: k.ID(), NeedsHosts: k.NeedsHosts}
	for _, e := range c.targets {
		switch {
		case e.report != nil && e.report.Verdict == Skipped:
		case e.node != "":
			if p.Nodes == nil {
				p.Nodes = make([]string, 0, len(c.targets))
			}
			p.Nodes = append(p.Nodes, e.node)
		default:
			p.Machines = append(p.Machines, e.machine.Key())
		}
	}
	return p
}

// Acting returns the checks that ask for an action, only with the targets
// concerned, refused or not.
func (l *Ledger) Acting(now time.Time) []CheckReport {
	now = l.Advance(now)
	r := l.report(l.involved(""), now)
	for i := range r.Checks {
		r.Checks[i].Targets = slices.DeleteFunc(r.Checks[i].Targets, func(t TargetReport) bool { return t.Action == None })
	}
	return slices.DeleteFunc(r.Checks, func(c CheckReport) bool { return len(c.Targets) == 0 })
}

// ActingOn returns the targets of this name that one check asks to remediate, as Acting does. Its
// cost does not grow with the other targets, unless a budget or the control plane makes them
// count: nothing else in a report depends on more than the results for one name.
func (l *Ledger) ActingOn(id CheckID, subject string, now time.Time) []TargetReport {
	now = l.Advance(now)
	some := map[*checkEntry][]*targetEntry{}
	for _, e := range l.targetsNamed(subject) {
		some[e.check] = append(some[e.check], e)
	}
	r := l.report(some, now)
	if len(l.budgets) > 0 || slices.ContainsFunc(r.Checks, func(c CheckReport) bool {
		return slices.ContainsFunc(c.Targets, func(t TargetReport) bool { return t.ControlPlane })
	}) {
		r = l.report(l.involved(""), now)
	}
	for i := range r.Checks {
		if r.Checks[i].ID() == id {
			return slices.DeleteFunc(r.Checks[i].Targets, func(t TargetReport) bool { return t.Action == None || t.Subject() != subject })
		}
	}
	return nil
}

// OnNode is the report restricted to one Node: the checks that evaluate it, or
// would if they were active, with that target only. A Machine without a Node has the
// name "namespace/name".
func (l *Ledger) OnNode(node string, now time.Time) Report {
	now = l.Advance(now)
	r := l.report(l.involved(node), now)
	r.restrict(node)
	return r
}

// Counters returns every check without its targets, as of the last change.
func (l *Ledger) Counters() []CheckReport {
	list := make([]CheckReport, 0, len(l.checks))
	for _, c := range l.checks {
		list = append(list, l.checkReport(c, nil, l.now))
	}
	slices.SortFunc(list, byName)
	return list
}

// involved lists the targets for which a check asks for an action, all other
// results for the same subjects, and the targets of one Node.
func (l *Ledger) involved(node string) map[*checkEntry][]*targetEntry {
	some := map[*checkEntry][]*targetEntry{}
	seen := map[string]bool{}
	add := func(subject string) {
		if seen[subject] {
			return
		}
		seen[subject] = true
		for _, e := range l.targetsNamed(subject) {
			some[e.check] = append(some[e.check], e)
		}
	}
	for e := range l.acting {
		add(e.subject())
	}
	if node == "" {
		return some
	}
	add(node)
	for _, c := range l.checks {
		if _, ok := some[c]; !ok {
			some[c] = nil // a check that is not active may cover the Node, too
		}
	}
	return some
}

// targetsNamed lists the targets with this name in all checks.
func (l *Ledger) targetsNamed(subject string) []*targetEntry {
	_, name := splitKey(subject)
	list := slices.Collect(l.onNode.of(subject))
	for e := range l.onMachine.of(name) {
		if e.node != subject && e.subject() == subject {
			list = append(list, e)
		}
	}
	return list
}

// report makes a report of some targets. If some contains all that are involved,
// each of them has the same result as in the full report.
func (l *Ledger) report(some map[*checkEntry][]*targetEntry, now time.Time) Report {
	r := Report{At: now, Checks: make([]CheckReport, 0, len(some)), Errors: []ObjectError{}}
	for c, list := range some {
		r.Checks = append(r.Checks, l.checkReport(c, list, now))
	}
	r.Errors = slices.AppendSeq(r.Errors, maps.Values(l.errors))
	l.tables.finish(&r, l.reportBudgets(&r), l.crowded)
	return r
}

// reportBudgets adds the budgets and their use to a report, and returns them in the same order.
func (l *Ledger) reportBudgets(r *Report) []DisruptionBudget {
	budgets := make([]DisruptionBudget, 0, len(l.budgets))
	for _, b := range l.sortedBudgets() {
		budgets = append(budgets, *b.budget)
		r.Budgets = append(r.Budgets, b.n.report(b.budget, b.budget.unseen(l.tables)))
	}
	return budgets
}

func (l *Ledger) sortedBudgets() []*budgetEntry {
	return slices.SortedFunc(maps.Values(l.budgets), func(a, b *budgetEntry) int { return byBudget(a.budget, b.budget) })
}

// checkReport is the report of a check with some of its targets. Its counters cover all of them.
func (l *Ledger) checkReport(c *checkEntry, list []*targetEntry, now time.Time) CheckReport {
	type place struct {
		Subject
		entry *targetEntry
	}
	places := make([]place, 0, len(list))
	for _, e := range list {
		places = append(places, place{l.subjectOf(e), e})
	}
	slices.SortFunc(places, func(a, b place) int { return bySubject(a.Subject, b.Subject) })
	targets := make([]TargetReport, 0, len(list))
	idle := map[string]bool{}
	for i := range places {
		x, e := &places[i].Subject, places[i].entry
		switch {
		case c.st.state != StateActive:
			idle[cmp.Or(x.nodeName(), x.machineKey())] = true
		case e.report == nil:
			targets = append(targets, evaluate(c.check, c.context, &c.st, x, now))
		default:
			targets = append(targets, e.report.asOf(now))
		}
	}
	n := c.n
	if due := c.clocks.due(0, time.Time{}); !due.IsZero() {
		n.wait(recheck(due, now))
	}
	for seconds := range c.waits {
		n.wait(seconds)
	}
	return newCheckReport(c.check, c.context, &c.st, targets, idle, n, now)
}

// asOf returns the same result at a later time, before it is due.
func (t *TargetReport) asOf(now time.Time) TargetReport {
	later := *t
	if !t.Due.IsZero() {
		later.RecheckAfterSeconds = recheck(t.Due, now)
	}
	return later
}

// restrict keeps only what concerns one Node.
func (r *Report) restrict(node string) {
	for i := range r.Checks {
		c := &r.Checks[i]
		c.Targets = slices.DeleteFunc(c.Targets, func(t TargetReport) bool { return t.Subject() != node })
		if c.idle[node] {
			c.idle = map[string]bool{node: true}
		} else {
			c.idle = map[string]bool{}
		}
	}
	r.Checks = slices.DeleteFunc(r.Checks, func(c CheckReport) bool {
		return len(c.Targets) == 0 && (c.State == StateActive || !c.unread && !c.idle[node])
	})
}

// CheckReport is the result of one check for all of its targets. It does not
// include the refusals by other checks, budgets and the control plane. It returns
// false if the check is unknown.
func (l *Ledger) CheckReport(id CheckID, now time.Time) (CheckReport, bool) {
	now = l.Advance(now)
	c := l.entry(id)
	if c == nil {
		return CheckReport{}, false
	}
	return l.checkReport(c, c.targets, now), true
}

// Waiting lists, in no order, the targets of one check with a running timeout,
// and those whose host has just been read Off. Its cost does not grow with the
// other targets.
func (l *Ledger) Waiting(id CheckID) []TargetReport {
	c := l.entry(id)
	if c == nil || c.st.state != StateActive {
		return nil
	}
	var list []TargetReport
	for _, e := range c.clocks {
		if !e.report.Due.IsZero() && !l.tables.readsOff[e.node] {
			list = append(list, e.report.asOf(l.now))
		}
	}
	for node := range l.tables.readsOff {
		for e := range l.onNode.of(node) {
			if e.check == c && e.report != nil {
				list = append(list, e.report.asOf(l.now))
			}
		}
	}
	return list
}

// Requests returns the remediation requests for a target. Its Machine and Node may be nil.
func (l *Ledger) Requests(t TargetNames, m *Machine, n *Node) []*Request {
	return l.tables.requests.of(t, m, n)
}

// entry returns the check with this ID, or nil.
func (l *Ledger) entry(id CheckID) *checkEntry {
	c := l.checks[keyOf(ObjectID{APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}, id.Source)]
	if c == nil || c.check.ID() != id {
		return nil
	}
	return c
}

// MachineIn returns the Machine of this name in the API group of apiVersion, or
// nil.
func (l *Ledger) MachineIn(apiVersion, namespace, name string) *Machine {
	return l.tables.machines[machineID{group(apiVersion), namespace, name}]
}

// Snapshot returns everything that the ledger holds, as input for Decide. The
// caller owns its slices and maps; the objects in them are shared.
func (l *Ledger) Snapshot() Snapshot {
	s := Snapshot{
		Nodes: maps.Clone(l.tables.nodes), Leases: maps.Clone(l.tables.leases), ReadsOff: maps.Clone(l.tables.readsOff),
		Upgrading: l.tables.upgrading, OpenRuns: slices.Clone(l.runs), Rules: l.tables.rules,
	}
	s.Checks = l.allChecks()
	slices.SortFunc(s.Checks, func(a, b Check) int { return a.ID().compare(b.ID()) })
	for _, b := range l.budgets {
		s.Budgets = append(s.Budgets, *b.budget)
	}
	slices.SortFunc(s.Budgets, func(a, b DisruptionBudget) int { return byBudget(&a, &b) })
	s.Machines = listOf(l.tables.machines, byMachine)
	s.Hosts = listOf(l.tables.hosts, func(a, b *Host) int { return strings.Compare(a.Key(), b.Key()) })
	s.Clusters = listOf(l.tables.clusters, func(a, b *Cluster) int {
		return strings.Compare(key(a.Namespace, a.Name), key(b.Namespace, b.Name))
	})
	s.Requests = listOf(l.requests, byRequest)
	s.Pods = listOf(l.tables.pods.byName, func(a, b *Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for id, err := range l.errors {
		s.Errors = append(s.Errors, err)
		s.Undecoded = append(s.Undecoded, id.Key())
	}
	return s
}

// listOf copies the values of a map, sorted.
func listOf[K comparable, V any](m map[K]*V, order func(a, b *V) int) []V {
	list := make([]V, 0, len(m))
	for _, v := range slices.SortedFunc(maps.Values(m), order) {
		list = append(list, *v)
	}
	return list
}

// Node returns the Node of this name, or nil.
func (l *Ledger) Node(name string) *Node { return l.tables.nodes[name] }

// Nodes iterates over the Nodes, in no order.
func (l *Ledger) Nodes() iter.Seq[*Node] { return maps.Values(l.tables.nodes) }

// Machines iterates over the Machines, in no order.
func (l *Ledger) Machines() iter.Seq[*Machine] { return maps.Values(l.tables.machines) }

// MachineOf returns the Machine that owns this Node, or nil. If several do, or
// none, call Doubt.
func (l *Ledger) MachineOf(node string) *Machine {
	if n := l.tables.nodes[node]; n != nil {
		m, _ := l.tables.machineOf(n)
		return m
	}
	if list := l.tables.ownersOf(node, nil); len(list) > 0 {
		return list[0]
	}
	return nil
}

// Check returns the check with this ID, or nil.
func (l *Ledger) Check(id CheckID) *Check {
	if c := l.entry(id); c != nil {
		return c.check
	}
	return nil
}

// MakerOf returns the check that made a request, or nil: a person, or a controller that is no check, did.
func (l *Ledger) MakerOf(q *Request) *Check {
	for _, e := range l.checks {
		if e.check.madeRequest(q) {
			return e.check
		}
	}
	return nil
}

// Host returns the BareMetalHost of this name, or nil.
func (l *Ledger) Host(namespace, name string) *Host { return l.tables.hosts[key(namespace, name)] }

// Fleet counts the Nodes of the cluster and of one zone, and how many of them are
// not ready.
type Fleet struct {
	Nodes, NotReady         int
	ZoneNodes, ZoneNotReady int
	// HasZones: some Node has the zone label.
	HasZones bool
}

// Fleet counts the Nodes of the cluster, and those of one zone.
func (l *Ledger) Fleet(zone string) Fleet {
	in := l.zones[zone]
	return Fleet{l.fleet.Nodes, l.fleet.NotReady, in.Nodes, in.NotReady, len(l.zones) > 0}
}
