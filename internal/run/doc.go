// Package run carries out one run. It looks at the BMC and at the cluster, asks remediate.Next
// what comes next, saves the answer, and acts, until the run ends. It does something
// destructive only if the record is durable, the look is fresh, and nothing forbids it. It
// checks all of that once more immediately before the action. // I1, I4, I19, I23, I24
//
//	runner.go        the runs of one cluster, each with a worker in a goroutine of its own
//	worker.go        the loop of one run: look, ask, save, act
//	look.go          everything that one look reads; kube.go: what it needs of the cluster
//	power.go         access to the BMC of the run's host; backups.go: the saved Node
//	session.go       sessions that killed processes left open
//	failure.go       reads that fail, told once per change
//	queue.go         whose turn it is to read the API
//	act.go           one action, and the checks while a destructive write is in progress
//	nodelock.go      the times of the Lease on a Node, where medik8s is installed
//	lastmoment.go    the checks immediately before a destructive action
//	confirmation.go  the checks of a manual confirmation
//	record.go        the audit entry of an action; worker.go saves the record of the run
//	pending.go       the step into Held that could not be saved yet
//	inbox.go         orders of people
//	clock.go         whether this host's clock was set since the record was saved
package run
