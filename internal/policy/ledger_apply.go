package policy

import (
	"fmt"
	"strings"
)

// apply takes one change: an object that could not be decoded is remembered as
// such, and its old value is not used any more.
func (l *Ledger) apply(c Change) {
	if _, known := l.errors[c.ID]; known {
		delete(l.errors, c.ID)
		l.w.dropUndecoded(c.ID.Key())
	}
	if err := l.put(c.ID, c.Value, c.Err); err != nil {
		l.errors[c.ID] = ObjectError{Object: c.ID.String(), Message: strings.ReplaceAll(err.Error(), "\n", "; ")}
		l.w.putUndecoded(c.ID.Key())
	}
}

// put replaces one object; a nil value takes it away. It gives the error back,
// or one of its own when the value is not what the kind says.
func (l *Ledger) put(id ObjectID, value any, err error) error {
	ok := true
	switch id.Kind {
	case "Node":
		ok = set1(id, value, l.setNode)
	case "Machine":
		ok = set1(id, value, l.setMachine)
	case MachineHealthCheckKind, NodeHealthCheckKind, FencePolicyKind:
		ok = set1(id, value, l.setCheck)
	case DisruptionBudgetKind:
		ok = set1(id, value, l.setBudget)
	case "Cluster":
		ok = set1(id, value, l.setCluster)
	case "Pod":
		ok = set1(id, value, l.setEtcdPod)
	case "Lease":
		ok = set1(id, value, l.setLease)
	case "BareMetalHost":
		ok = set1(id, value, l.setHost)
	case "ClusterVersion":
		ok = set1(id, value, l.setUpgrade)
	default:
		ok = set1(id, value, l.setRequest)
	}
	if !ok && err == nil {
		return fmt.Errorf("a %s cannot be a %T", id.Kind, value)
	}
	return err
}

// set1 hands a value of the right type on, and nil instead of any other.
func set1[T any](id ObjectID, value any, set func(ObjectID, *T)) bool {
	v, ok := value.(*T)
	set(id, v)
	return ok || value == nil
}

func (l *Ledger) setNode(id ObjectID, n *Node) {
	delete(l.w.nodes, id.Name)
	if n != nil {
		l.w.nodes[id.Name] = n
	}
}

func (l *Ledger) setMachine(id ObjectID, m *Machine) {
	old := l.w.machines[machineID{group(id.APIVersion), id.Namespace, id.Name}]
	if old != nil {
		if m == nil && old.APIVersion != id.APIVersion {
			return // it lives on in another version of the API
		}
		l.w.dropMachine(old)
	}
	if m != nil {
		l.w.putMachine(m)
	}
}

func (l *Ledger) setCheck(id ObjectID, c *Check) {
	k := checkKey{group: group(id.APIVersion), kind: id.Kind, namespace: id.Namespace, name: id.Name}
	if c != nil && c.Source != "cluster" {
		k.source = c.Source
	}
	old := l.checks[k]
	if old != nil {
		if c == nil && old.APIVersion != id.APIVersion {
			return
		}
		delete(l.w.machineChecks, old.ID())
		delete(l.checks, k)
	}
	if c != nil {
		l.checks[k] = c
		l.w.putMachineCheck(c)
	}
}

func (l *Ledger) setBudget(id ObjectID, b *DisruptionBudget) {
	k := checkKey{kind: id.Kind, name: id.Name}
	if b != nil && b.Source != "cluster" {
		k.source = b.Source
	}
	delete(l.budgets, k)
	if b != nil {
		l.budgets[k] = b
	}
}

func (l *Ledger) setCluster(id ObjectID, c *Cluster) {
	delete(l.w.clusters, key(id.Namespace, id.Name))
	if c != nil {
		l.w.clusters[key(id.Namespace, id.Name)] = c
	}
}

func (l *Ledger) setEtcdPod(id ObjectID, p *EtcdPod) {
	delete(l.w.etcd, id.Key())
	if p != nil {
		l.w.etcd[id.Key()] = p
	}
}

func (l *Ledger) setLease(id ObjectID, v *Lease) {
	delete(l.w.leases, id.Name)
	if v != nil {
		l.w.leases[id.Name] = *v
	}
}

func (l *Ledger) setHost(id ObjectID, h *Host) {
	delete(l.hosts, key(id.Namespace, id.Name))
	if h != nil {
		l.hosts[key(id.Namespace, id.Name)] = h
	}
}

func (l *Ledger) setUpgrade(_ ObjectID, u *Upgrade) {
	l.w.upgrading = ""
	if u != nil {
		l.w.upgrading = u.Why
	}
}

func (l *Ledger) setRequest(id ObjectID, r *Request) {
	if old := l.requests[id]; old != nil {
		delete(l.requests, id)
		drop(l.w.requests, old.about(), old)
	}
	if r != nil {
		l.requests[id] = r
		l.w.putRequest(r)
	}
}
