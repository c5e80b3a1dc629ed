package order

import "time"

// Target is what is known about the target of a fence, for the person who orders it.
type Target struct {
	Cluster, Node, Machine string
	// Ready is the status of the Node's condition Ready, ReadySince when it became so. Ready is
	// "" if there is no Node, or if it has no such condition.
	Ready      string
	ReadySince time.Time
	// Pods are those on the Node; nil: they are not known, and PodsProblem may say why.
	Pods        *Pods
	PodsProblem string
	// BMC is the address of what switches the host's power; "" if it was not asked.
	BMC string
	// Identity is whether the BMC that answered is that of the machine, as the gate says it, and
	// UUID what it reported. Both are "" if no BMC was asked.
	Identity, UUID string
}

// Pods are the pods that are bound to a Node, as namespace/name.
type Pods struct {
	Names []string
	More  bool // there are others
}
