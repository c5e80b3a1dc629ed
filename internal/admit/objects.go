package admit

import (
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Objects reads the objects of a cluster from its Book, for package hosts.
type Objects struct{ b *Book }

// Objects returns the objects in the Book.
func (b *Book) Objects() Objects { return Objects{b} }

// Seen says whether the Book has the complete view of the cluster.
func (o Objects) Seen() bool { return o.b.Seen() }

// TargetOn returns the objects of one Node as the target of a run.
func (o Objects) TargetOn(node string) (remediate.Target, bool) { return o.b.TargetOn(node) }

// TargetOf returns the objects of one Machine, which may have no Node, as the target of a
// run. machine is its "namespace/name". It returns false when no Machine has this name, or
// one of each API family has.
func (o Objects) TargetOf(machine string) (remediate.Target, bool) {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	m := machineNamed(o.b.ledger, machine)
	if m == nil {
		return remediate.Target{}, false
	}
	return targetOf(o.b.ledger, o.b.opt.Name, m, o.b.ledger.Node(m.NodeName), m.NodeName), true
}

// MachineOf returns the Machine of a target; nil when it is gone or was replaced.
func (o Objects) MachineOf(t remediate.Target) *policy.Machine {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	m := o.b.ledger.MachineIn(t.MachineAPI, t.Namespace, t.Machine)
	if m == nil || m.UID != t.MachineUID {
		return nil
	}
	return m
}

// Node returns the Node with this name, or nil.
func (o Objects) Node(name string) *policy.Node {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	return o.b.ledger.Node(name)
}

// Machines lists all Machines, in no order.
func (o Objects) Machines() []*policy.Machine {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	return slices.Collect(o.b.ledger.Machines())
}

// BareMetalHost returns the BareMetalHost with this name, or nil.
func (o Objects) BareMetalHost(namespace, name string) *policy.Host {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	return o.b.ledger.Host(namespace, name)
}

// HostOf finds the BareMetalHost of a Machine.
func (o Objects) HostOf(m *policy.Machine) (policy.Host, error) {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	return o.b.ledger.HostOf(m)
}

// OtherNodeWithUUID describes another Node that has the system UUID; "" if none has. // I9
func (o Objects) OtherNodeWithUUID(node, systemUUID string) string {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	return o.b.ledger.NodeWithSameUUID(node, systemUUID)
}

// Healthy says whether the Node of a target is Ready and no run is open on its host, so that
// fenced does not switch it now.
func (o Objects) Healthy(t remediate.Target) bool {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	n := o.b.ledger.Node(t.Node)
	return n != nil && n.Ready() && !o.b.runs.openOnHost(t)
}

// Names lists the Nodes and the Machines ("namespace/name") whose names begin with a prefix, in no
// order.
func (o Objects) Names(prefix string) (nodes, machines []string) {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	for n := range o.b.ledger.Nodes() {
		if strings.HasPrefix(n.Name, prefix) {
			nodes = append(nodes, n.Name)
		}
	}
	for m := range o.b.ledger.Machines() {
		if name := m.Namespace + "/" + m.Name; strings.HasPrefix(name, prefix) {
			machines = append(machines, name)
		}
	}
	return nodes, machines
}
