package policy

// ObjectID names one object of a cluster.
type ObjectID struct {
	APIVersion, Kind, Namespace, Name string
}

// Change is one object that came, changed or went.
type Change struct {
	ID ObjectID
	// Value is the object: a *Node, *Machine, *Check, *DisruptionBudget, *Cluster,
	// *Request, *EtcdPod, *Lease, *Host or *Upgrade. Nil without Err: it is gone.
	Value any
	// Err: the object is there and could not be decoded. It is not judged, and
	// never taken for absent.
	Err error
}

// Upgrade is what a ClusterVersion says: why the cluster is being upgraded; ""
// when it is not.
type Upgrade struct {
	Why string
}
