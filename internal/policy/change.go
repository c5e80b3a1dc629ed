package policy

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
func (id ObjectID) Key() ObjectKey { return ObjectKey{id.Kind, id.Namespace, id.Name} }

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
