package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Objects reads the objects of a cluster from its Model, for package hosts.
type Objects struct{ model *Model }

// Objects returns the objects in the Model.
func (c *Model) Objects() Objects { return Objects{c} }

// Seen says whether the Model has the complete view of the cluster.
func (o Objects) Seen() bool { return o.model.Seen() }

// TargetOn returns the objects of one Node as the target of a run.
func (o Objects) TargetOn(node string) (remediate.Target, bool) { return o.model.TargetOn(node) }

// TargetOf returns the objects of one Machine, which may have no Node, as the target of a
// run. machine is its "namespace/name". It returns false when no Machine has this name, or
// one of each API family has.
func (o Objects) TargetOf(machine string) (remediate.Target, bool) {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	m := machineNamed(o.model.ledger, machine)
	if m == nil {
		return remediate.Target{}, false
	}
	return targetOf(o.model.ledger, o.model.Options.Name, m, o.model.ledger.Node(m.NodeName), m.NodeName), true
}

// MachineOf returns the Machine of a target; nil when it is gone or was replaced.
func (o Objects) MachineOf(t remediate.Target) *policy.Machine {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	m := o.model.ledger.MachineIn(t.MachineAPI, t.Namespace, t.Machine)
	if m == nil || m.UID != t.MachineUID {
		return nil
	}
	return m
}

// Node returns the Node with this name, or nil.
func (o Objects) Node(name string) *policy.Node {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	return o.model.ledger.Node(name)
}

// Machines lists all Machines, in no order.
func (o Objects) Machines() []*policy.Machine {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	return slices.Collect(o.model.ledger.Machines())
}

// BareMetalHost returns the BareMetalHost with this name, or nil.
func (o Objects) BareMetalHost(namespace, name string) *policy.Host {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	return o.model.ledger.Host(namespace, name)
}

// HostOf finds the BareMetalHost of a Machine.
func (o Objects) HostOf(m *policy.Machine) (policy.Host, error) {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	return o.model.ledger.HostOf(m)
}

// OtherNodeWithUUID describes another Node that has the system UUID; "" if none has. // I9
func (o Objects) OtherNodeWithUUID(node, systemUUID string) string {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	return o.model.ledger.NodeWithSameUUID(node, systemUUID)
}

// Healthy says whether the Node of a target is Ready and no run is open on its host, so that
// fenced does not switch it now.
func (o Objects) Healthy(t remediate.Target) bool {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	n := o.model.ledger.Node(t.Node)
	return n != nil && n.Ready() && !o.model.runs.openOnHost(t)
}

// NamesSince returns the Node that the Machine of a target has now, and the Machine that has its Node.
func (o Objects) NamesSince(t remediate.Target) (names []string) {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	if m := o.model.ledger.MachineIn(t.MachineAPI, t.Namespace, t.Machine); m != nil {
		names = append(names, m.NodeName)
	}
	if m := o.model.ledger.MachineOf(t.Node); m != nil {
		names = append(names, m.Key())
	}
	return names
}

// Disappearing lists the runs whose Machine, or the Node of that, is still being deleted; see runs.disappearing.
func (o Objects) Disappearing(now time.Time) (inProgress, overdue []remediate.Run) {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	if !o.model.complete {
		return nil, nil
	}
	return o.model.runs.disappearing(o.model.ledger, o.model.Options.Limits.Guards().DeletionTimeout, now)
}

// Names lists the Nodes and the Machines ("namespace/name") whose names begin with a prefix, in no
// order.
func (o Objects) Names(prefix string) (nodes, machines []string) {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	for n := range o.model.ledger.Nodes() {
		if strings.HasPrefix(n.Name, prefix) {
			nodes = append(nodes, n.Name)
		}
	}
	for m := range o.model.ledger.Machines() {
		if name := m.Namespace + "/" + m.Name; strings.HasPrefix(name, prefix) {
			machines = append(machines, name)
		}
	}
	return nodes, machines
}

// Quorum says why etcd would lose its quorum without the member on a Node, by members that were just
// read; "" if it would not. // I12
func (o Objects) Quorum(members []policy.Member, node string) (reason.Code, string) {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	return o.model.ledger.Quorum(members, node)
}

// TakesTurn says whether other control-plane hosts wait for the one with this Node and this Machine,
// either of which may be nil. // I12
func (o Objects) TakesTurn(n *policy.Node, m *policy.Machine) bool {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	return o.model.ledger.TakesTurn(n, m)
}

// Unlabelled lists the Nodes that only their kubelets make one of the control plane, in a cluster that labels its
// control plane. // I12
func (o Objects) Unlabelled() []string {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	return o.model.ledger.Unlabelled()
}

// Crowds lists the namespaces with more checks than are evaluated.
func (o Objects) Crowds() []policy.Crowd {
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	return o.model.ledger.Crowds()
}

// evaluatedMachine finds the Machine that was evaluated; nil when it is gone or was replaced.
func evaluatedMachine(l *policy.Ledger, t *policy.TargetReport) *policy.Machine {
	ns, name, _ := strings.Cut(t.Machine, "/")
	m := l.MachineIn(t.MachineAPIVersion, ns, name)
	if m == nil || m.UID != t.MachineUID {
		return nil
	}
	return m
}

// targetOf returns the target of a run, with the UIDs that its objects have now. // I2
func targetOf(l *policy.Ledger, cluster string, m *policy.Machine, n *policy.Node, nodeName string) remediate.Target {
	t := remediate.Target{Cluster: cluster, Node: nodeName}
	if n != nil {
		t.NodeUID, t.BootID, t.SystemUUID = n.UID, n.BootID, n.SystemUUID
	}
	if m != nil {
		t.Namespace, t.Machine, t.MachineUID, t.MachineAPI = m.Namespace, m.Name, m.UID, m.APIVersion
		if h, err := l.HostOf(m); err == nil { // otherwise hosts.d may name the host
			t.BareMetalHost, t.BareMetalHostUID = h.Key(), h.UID
		}
	}
	return t
}

// SubjectOf is the name of a target as policy has it: its Node, or the "namespace/name" of
// a Machine that has none.
func SubjectOf(t remediate.Target) string { return cmp.Or(t.Node, t.MachineKey()) }

// IsOn says whether a run is on the Node of a target or, if that has none, on its Machine.
func IsOn(r *remediate.Run, subject string) bool {
	return subject != "" && (r.Target.Node == subject || r.Target.MachineKey() == subject)
}

// machineNamed returns the Machine with this "namespace/name"; nil if there is none, or one
// of each API family.
func machineNamed(l *policy.Ledger, machine string) (found *policy.Machine) {
	namespace, name, _ := strings.Cut(machine, "/")
	for _, api := range []string{policy.OpenShiftMachineAPI, policy.ClusterAPIV1Beta2} {
		m := l.MachineIn(api, namespace, name)
		if m != nil && found != nil {
			return nil
		}
		if m != nil {
			found = m
		}
	}
	return found
}

// missingHost says why the BareMetalHost that a Machine names is not found; "" if it is
// found, or if none is named. Without it fenced can neither ask its owner nor set the power
// lock, even if hosts.d names the host. // I22
func missingHost(l *policy.Ledger, m *policy.Machine) string {
	if m == nil || !m.NamesHost() {
		return ""
	}
	if _, err := l.HostOf(m); err != nil {
		return "Machine " + m.Key() + ": " + err.Error()
	}
	return ""
}

// anyMachineHasItsNode says whether Machines and Nodes are of one cluster: if every Machine's
// Node is missing, the Nodes are those of another cluster. In a normal cluster the first Node
// answers.
func anyMachineHasItsNode(l *policy.Ledger) bool {
	for n := range l.Nodes() {
		if l.MachineOf(n.Name) != nil {
			return true
		}
	}
	return false
}

// hasReturned says whether a Node with the UUID of a run's host shows that the host has
// registered since the run started. A kubelet writes Ready as True or False. The control plane writes
// Unknown when it gets no heartbeat. Such a Node may be left over from a renaming before the
// run. It counts only if it is of another boot and became Unknown after the run started.
func hasReturned(n *policy.Node, r remediate.Run) bool {
	otherBoot := n.BootID != "" && n.BootID != r.Target.BootID
	for _, c := range n.Conditions {
		if c.Type == "Ready" && c.Status != "True" && c.Status != "False" {
			return otherBoot && c.LastTransition.After(r.Started)
		}
		if c.Type == "Ready" {
			return true
		}
	}
	return otherBoot
}
