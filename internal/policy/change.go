package policy

import "slices"

// ObjectID names one object of a cluster.
type ObjectID struct {
	APIVersion, Kind, Namespace, Name string
}

// String names the object for people.
func (id ObjectID) String() string {
	if id.Name == "" {
		return id.Kind + " (no name)"
	}
	return id.Kind + " " + key(id.Namespace, id.Name)
}

// Key is what Snapshot.Undecoded holds for the object.
func (id ObjectID) Key() ObjectKey { return ObjectKey{id.kind(), id.Namespace, id.Name} }

// kindGroups are the API groups of the kinds that are read, the core one by its
// version. An object of another group may have a kind of the same name: a
// remediation request of whatever kind the author of a check has chosen.
var kindGroups = map[string][]string{
	"Node": {"v1"}, "Pod": {"v1"}, "Lease": {"coordination.k8s.io"},
	"Machine": machineGroups, MachineHealthCheckKind: machineGroups, "Cluster": {group(ClusterAPIV1Beta2)},
	NodeHealthCheckKind: {group(Medik8sAPI)}, FencePolicyKind: {group(FencedAPI)}, DisruptionBudgetKind: {group(FencedAPI)},
	"BareMetalHost": {"metal3.io"}, "ClusterVersion": {"config.openshift.io"},
}

// kind is the kind, with the API group where it is not the one that is read by
// this name. Without an apiVersion it may be.
func (id ObjectID) kind() string {
	groups, ours := kindGroups[id.Kind]
	if !ours || id.APIVersion == "" || slices.Contains(groups, group(id.APIVersion)) {
		return id.Kind
	}
	return id.Kind + "." + group(id.APIVersion)
}

// Change is one object that came, changed or went.
type Change struct {
	ID ObjectID
	// Value is the object: a *Node, *Machine, *Check, *DisruptionBudget, *Cluster,
	// *Request, *EtcdPod, *Lease, *Host or *Upgrade. Nil without Err: it is gone
	// from the cluster; what came from a file stays.
	Value any
	// Err: the object is there and could not be decoded. It is not judged, and
	// never taken for absent. A Value beside it is what could be read of it.
	Err error
}

// Upgrade is what a ClusterVersion says: why the cluster is being upgraded; ""
// when it is not.
type Upgrade struct {
	Why string
}
