package policy

import "slices"

// ObjectID names one object of a cluster.
type ObjectID struct {
	APIVersion, Kind, Namespace, Name string
	// OnManagementAPI: a remediation request on a separate management API. The workload API
	// may have another one of the same name.
	OnManagementAPI bool
}

// String names the object for people.
func (id ObjectID) String() string {
	if id.Name == "" {
		return id.Kind + " (no name)"
	}
	return id.Kind + " " + key(id.Namespace, id.Name)
}

// Key is the key of the object in Snapshot.Undecoded.
func (id ObjectID) Key() ObjectKey {
	k := ObjectKey{Kind: id.kind(), Namespace: id.Namespace, Name: id.Name}
	if k.Kind == "Machine" {
		k.Group = group(id.APIVersion)
	}
	return k
}

// kindGroups are the API groups of the kinds that fenced reads; the core group is
// given by its version. An object of another group may have a kind of the same
// name, for example a remediation request of a kind that the author of a check
// chose.
var kindGroups = map[string][]string{
	"Node": {"v1"}, "Pod": {"v1"}, "Lease": {"coordination.k8s.io"},
	"Machine": machineGroups, MachineHealthCheckKind: machineGroups, "Cluster": {group(ClusterAPIV1Beta2)},
	NodeHealthCheckKind: {group(Medik8sAPI)}, FencePolicyKind: {group(FencedAPI)}, DisruptionBudgetKind: {group(FencedAPI)},
	"BareMetalHost": {"metal3.io"}, "ClusterVersion": {"config.openshift.io"},
}

// kind is the kind, with the API group appended if the group is not one that
// fenced reads under this kind. An ID without an apiVersion keeps its plain kind.
func (id ObjectID) kind() string {
	groups, ours := kindGroups[id.Kind]
	if !ours || id.APIVersion == "" || slices.Contains(groups, group(id.APIVersion)) {
		return id.Kind
	}
	return id.Kind + "." + group(id.APIVersion)
}

// Change is one object that was added, changed or deleted.
type Change struct {
	ID ObjectID
	// Value is the object: a *Node, *Machine, *Check, *DisruptionBudget, *Cluster,
	// *Request, *Pod, *Lease, *Host or *Upgrade. A nil Value with a nil Err
	// means that the object is gone from the cluster. A check that came from a file
	// stays.
	Value any
	// Err means that the object exists but could not be decoded. It is not
	// evaluated, and never treated as absent. A Value next to Err is what could be
	// read.
	Err error
}

// Upgrade is the state of a ClusterVersion: Why describes the upgrade in
// progress; "" means that there is none.
type Upgrade struct {
	Why string
}
