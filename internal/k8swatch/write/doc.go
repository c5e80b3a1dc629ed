// Package write does the few writes to a cluster: those of runs, and what fenced tells others. Each write has the UID, and
// where needed the resourceVersion, of the decision as its precondition. // I2
//
//	act.go       the writes of a run's steps, and the pods of an isolated Node
//	restore.go   which labels, annotations and taints a Node gets back // I21
//	mark.go      handing a Cluster API Machine to its owner, and the marks of an open run
//	requests.go  what fenced tells the remediation requests that it carries out
//	handover.go  the requests that it makes for other remediators, drafted in draft.go
//	status.go    what the controllers of checks would write into their status and on Machines
//	nodelock.go  medik8s' Lease on the Node of a run // I22
//	lease.go     the Lease that says which installation fences // I22
//	events.go    Kubernetes Events
package write
