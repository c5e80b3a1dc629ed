package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Snapshot is everything that the ledger holds, as Decide wants it. Its slices
// and maps are the caller's, the objects in them are shared.
func (l *Ledger) Snapshot() Snapshot {
	s := Snapshot{
		Nodes: maps.Clone(l.w.nodes), Leases: maps.Clone(l.w.leases), ReadsOff: maps.Clone(l.w.readsOff),
		Upgrading: l.w.upgrading, OpenRuns: slices.Clone(l.runs), Rules: l.w.rules,
	}
	s.Checks = listOf(l.checks, func(a, b *Check) int { return a.ID().compare(b.ID()) })
	s.Budgets = listOf(l.budgets, byBudget)
	s.Machines = listOf(l.w.machines, byMachine)
	s.Hosts = listOf(l.hosts, func(a, b *Host) int { return strings.Compare(a.Key(), b.Key()) })
	s.Clusters = listOf(l.w.clusters, func(a, b *Cluster) int {
		return strings.Compare(key(a.Namespace, a.Name), key(b.Namespace, b.Name))
	})
	s.Requests = listOf(l.requests, byRequest)
	s.Etcd = listOf(l.w.etcd, func(a, b *EtcdPod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for id, err := range l.errors {
		s.Errors = append(s.Errors, err)
		s.Undecoded = append(s.Undecoded, id.Key())
	}
	return s
}

func byBudget(a, b *DisruptionBudget) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Source, b.Source))
}

// listOf copies the values of a map, in an order of their own.
func listOf[K comparable, V any](m map[K]*V, order func(a, b *V) int) []V {
	list := make([]V, 0, len(m))
	for _, v := range slices.SortedFunc(maps.Values(m), order) {
		list = append(list, *v)
	}
	return list
}

// Node gives the Node of this name, or nil.
func (l *Ledger) Node(name string) *Node { return l.w.nodes[name] }

// Nodes goes through the Nodes, in no order.
func (l *Ledger) Nodes() iter.Seq[*Node] { return maps.Values(l.w.nodes) }

// Machine gives the Machine of this name, or nil; OpenShift's where both
// lineages have one.
func (l *Ledger) Machine(namespace, name string) *Machine {
	for _, g := range machineGroups {
		if m := l.w.machines[machineID{g, namespace, name}]; m != nil {
			return m
		}
	}
	return nil
}

// MachineOf gives the Machine that names this Node, or nil: the first one where
// several do.
func (l *Ledger) MachineOf(node string) *Machine {
	if list := l.w.byNode[node]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// Check gives the check with this ID, or nil.
func (l *Ledger) Check(id CheckID) *Check {
	k := checkKey{group: group(id.APIVersion), kind: id.Kind, namespace: id.Namespace, name: id.Name}
	if id.Source != "cluster" {
		k.source = id.Source
	}
	if c := l.checks[k]; c != nil && c.ID() == id {
		return c
	}
	return nil
}

// Host gives the BareMetalHost of this name, or nil.
func (l *Ledger) Host(namespace, name string) *Host { return l.hosts[key(namespace, name)] }

// Hosts goes through the BareMetalHosts, in no order.
func (l *Ledger) Hosts() iter.Seq[*Host] { return maps.Values(l.hosts) }

// Cluster gives the Cluster API's Cluster of this name, or nil.
func (l *Ledger) Cluster(namespace, name string) *Cluster { return l.w.clusters[key(namespace, name)] }

// Surroundings is what a check is judged amid now; it does not change later.
func (l *Ledger) Surroundings(c *Check) Surroundings {
	a := l.w.surroundings(c)
	a.MachineChecks = maps.Clone(a.MachineChecks)
	return a
}

// Fleet is how many Nodes there are and how many of them are not ready.
type Fleet struct {
	Nodes, NotReady         int
	ZoneNodes, ZoneNotReady int
}

// Fleet counts the Nodes of the cluster and those of one zone.
func (l *Ledger) Fleet(zone string) Fleet {
	var f Fleet
	for _, n := range l.w.nodes {
		f.Nodes++
		in := zone != "" && n.Labels[l.w.rules.ZoneKey] == zone
		if in {
			f.ZoneNodes++
		}
		if !n.Ready() {
			f.NotReady++
			if in {
				f.ZoneNotReady++
			}
		}
	}
	return f
}

// Twin names another Node with the same system UUID, or nothing. Which texts
// stand for the same UUID in other byte orders is the caller's knowledge. // I9
func (l *Ledger) Twin(node, systemUUID string) string {
	twin := ""
	for _, n := range l.w.nodes {
		if n.Name != node && plainUUID(n.SystemUUID) == plainUUID(systemUUID) && (twin == "" || n.Name < twin) {
			twin = n.Name
		}
	}
	return twin
}

// plainUUID is a UUID without its punctuation, so that texts compare.
func plainUUID(s string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), "-", ""))
}
