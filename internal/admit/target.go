package admit

import (
	"cmp"
	"strings"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

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

// subjectOf is the name of a target as policy has it: its Node, or the "namespace/name" of
// a Machine that has none.
func subjectOf(t remediate.Target) string { return cmp.Or(t.Node, t.MachineKey()) }

// isOn says whether a run is on the Node of a target or, if that has none, on its Machine.
func isOn(r *remediate.Run, subject string) bool {
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
