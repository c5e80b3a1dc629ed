package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Snapshot returns everything that the ledger holds, as input for Decide. The
// caller owns its slices and maps; the objects in them are shared.
func (l *Ledger) Snapshot() Snapshot {
	s := Snapshot{
		Nodes: maps.Clone(l.w.nodes), Leases: maps.Clone(l.w.leases), ReadsOff: maps.Clone(l.w.readsOff),
		Upgrading: l.w.upgrading, OpenRuns: slices.Clone(l.runs), Rules: l.w.rules,
	}
	s.Checks = l.allChecks()
	slices.SortFunc(s.Checks, func(a, b Check) int { return a.ID().compare(b.ID()) })
	for _, b := range l.budgetList() {
		s.Budgets = append(s.Budgets, *b.budget)
	}
	s.Machines = listOf(l.w.machines, byMachine)
	s.Hosts = listOf(l.w.hosts, func(a, b *Host) int { return strings.Compare(a.Key(), b.Key()) })
	s.Clusters = listOf(l.w.clusters, func(a, b *Cluster) int {
		return strings.Compare(key(a.Namespace, a.Name), key(b.Namespace, b.Name))
	})
	s.Requests = listOf(l.requests, byRequest)
	s.Pods = listOf(l.w.pods.byName, podOrder)
	for id, err := range l.errors {
		s.Errors = append(s.Errors, err)
		s.Undecoded = append(s.Undecoded, id.Key())
	}
	return s
}

// budgetList lists the budgets by name.
func (l *Ledger) budgetList() []*budgetEntry {
	return slices.SortedFunc(maps.Values(l.budgets), func(a, b *budgetEntry) int {
		return cmp.Or(strings.Compare(a.budget.Name, b.budget.Name), strings.Compare(a.budget.Source, b.budget.Source))
	})
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
func (l *Ledger) Node(name string) *Node { return l.w.nodes[name] }

// Nodes iterates over the Nodes, in no order.
func (l *Ledger) Nodes() iter.Seq[*Node] { return maps.Values(l.w.nodes) }

// Machines iterates over the Machines, in no order.
func (l *Ledger) Machines() iter.Seq[*Machine] { return maps.Values(l.w.machines) }

// MachineOf returns the Machine that owns this Node, or nil. If several do, or
// none, call Doubt.
func (l *Ledger) MachineOf(node string) *Machine {
	if n := l.w.nodes[node]; n != nil {
		m, _ := l.w.owners().machineOf(n)
		return m
	}
	if list := l.w.owners().of(node, nil); len(list) > 0 {
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
func (l *Ledger) Host(namespace, name string) *Host { return l.w.hosts[key(namespace, name)] }

// CheckContext returns the current context of a check. Later changes do not
// affect it.
func (l *Ledger) CheckContext(c *Check) CheckContext {
	a := l.w.checkContext(c)
	a.MachineChecks = maps.Clone(a.MachineChecks)
	return a
}

// Fleet counts the Nodes of the cluster and of one zone, and how many of them are
// not ready.
type Fleet struct {
	Nodes, NotReady         int
	ZoneNodes, ZoneNotReady int
}

func (f *Fleet) addNode(n *Node, by int) {
	f.Nodes += by
	if !n.Ready() {
		f.NotReady += by
	}
}

// Fleet counts the Nodes of the cluster, and those of one zone.
func (l *Ledger) Fleet(zone string) Fleet {
	in := l.zones[zone]
	return Fleet{l.fleet.Nodes, l.fleet.NotReady, in.Nodes, in.NotReady}
}

// HasZones reports whether a Node has the zone label.
func (l *Ledger) HasZones() bool { return len(l.zones) > 0 }

// NodeWithSameUUID says which other Node has the system UUID; "" if none has. // I9
func (l *Ledger) NodeWithSameUUID(node, systemUUID string) string {
	return l.w.nodesByUUID.other(node, systemUUID)
}

// OtherNodesWithUUID returns the other Nodes with the same system UUID, by name.
func (l *Ledger) OtherNodesWithUUID(node, systemUUID string) []*Node {
	return l.w.nodesByUUID.others(node, systemUUID)
}
