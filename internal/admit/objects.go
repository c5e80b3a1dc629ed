package admit

import (
	"slices"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Objects reads the objects of a cluster from its Book, as hosts ask for them.
type Objects struct{ b *Book }

// Objects gives them.
func (b *Book) Objects() Objects { return Objects{b} }

// Seen says whether the cluster was seen whole.
func (o Objects) Seen() bool { return o.b.Seen() }

// TargetOn names the objects of one Node as a run would.
func (o Objects) TargetOn(node string) (remediate.Target, bool) { return o.b.TargetOn(node) }

// Node is the one with this name, or nil.
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

// BareMetalHost is the one with this name, or nil.
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

// Twin says which other Node has a system UUID; "" when none has. // I9
func (o Objects) Twin(node, systemUUID string) string {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	return twinOf(o.b.ledger, node, systemUUID)
}

// Healthy says whether the Node of a target is Ready, and no run is open on its host: that
// is being switched.
func (o Objects) Healthy(t remediate.Target) bool {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	n := o.b.ledger.Node(t.Node)
	return n != nil && n.Ready() && !o.b.runs.openOnHost(t)
}
