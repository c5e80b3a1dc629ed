// Package run carries out one run. It looks at the BMC and at the cluster, asks remediate.Next
// what comes next, saves the answer, and acts, until the run ends. It does something
// destructive only if the record is durable, the look is fresh, and nothing forbids it. It
// checks all of that once more immediately before the action. // I1, I4, I19, I23, I24
//
//	runner.go  the runs of one cluster, each with a worker in a goroutine of its own: it looks, asks, saves
//	           and acts, and takes the orders of people between two looks
//	look.go    everything that one look reads, the queue for the API, and the Lease on the Node where medik8s is
//	           installed; failed reads are told once per change
//	power.go   access to the BMC of the run's host, and the checks of a manual confirmation
//	act.go     one action, its audit entry, and the checks before and during a destructive one
package run
