package admit

import (
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// judgedMachine finds the very Machine that was judged; nil when it is gone.
func judgedMachine(l *policy.Ledger, t *policy.TargetReport) *policy.Machine {
	ns, name, _ := strings.Cut(t.Machine, "/")
	m := l.MachineIn(t.MachineAPIVersion, ns, name)
	if m == nil || m.UID != t.MachineUID {
		return nil
	}
	return m
}

// targetOf names the objects of a run with the UIDs they have now. // I2
func targetOf(l *policy.Ledger, cluster string, m *policy.Machine, n *policy.Node, nodeName string) remediate.Target {
	t := remediate.Target{Cluster: cluster, Node: nodeName}
	if n != nil {
		t.NodeUID, t.BootID, t.SystemUUID = n.UID, n.BootID, n.SystemUUID
	}
	if m != nil {
		t.Namespace, t.Machine, t.MachineUID, t.MachineAPI = m.Namespace, m.Name, m.UID, m.APIVersion
		if h, err := l.HostOf(m); err == nil { // where none is named, hosts.d may know the way
			t.BareMetalHost = h.Key()
		}
	}
	return t
}

// hostLost says why the BareMetalHost that a Machine names is not found; "" when
// it is, or none is named. Its owner could neither be asked nor told to keep
// still, whatever hosts.d knows. // I22
func hostLost(l *policy.Ledger, m *policy.Machine) string {
	if m == nil || !m.NamesHost() {
		return ""
	}
	if _, err := l.HostOf(m); err != nil {
		return "Machine " + m.Key() + ": " + err.Error()
	}
	return ""
}

// twinOf names another Node with this system UUID, in any byte order: a host that
// registered under a second name. // I9
func twinOf(l *policy.Ledger, node, uuid string) string {
	for _, form := range bmc.UUIDForms(uuid) {
		if other := l.OtherNodeWithUUID(node, form); other != "" {
			return "Node " + other + " has the same system UUID"
		}
	}
	return ""
}

// anyMachineHasItsNode says whether Machines and Nodes are of one cluster: when
// every Machine's Node is missing, the view is of another cluster's Nodes. Where
// all is well the first Node answers.
func anyMachineHasItsNode(l *policy.Ledger) bool {
	for n := range l.Nodes() {
		if l.MachineOf(n.Name) != nil {
			return true
		}
	}
	return false
}

// fleetOf counts Nodes, those of one zone apart. The ledger knows the zones of one key,
// ledgerKey; those of a check's own key are counted here, for the few candidates that such
// a check has.
func fleetOf(l *policy.Ledger, ledgerKey, key, zone string) policy.Fleet {
	if zone == "" || key == ledgerKey {
		return l.Fleet(zone)
	}
	f := l.Fleet("")
	for n := range l.Nodes() {
		if n.Labels[key] != zone {
			continue
		}
		f.ZoneNodes++
		if !n.Ready() {
			f.ZoneNotReady++
		}
	}
	return f
}
