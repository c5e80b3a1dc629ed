// Package run carries out one run: it looks at the BMC and the cluster, asks remediate.Next
// what comes next, saves the answer, and acts, until the run ends. What is destructive is
// done only on a record that is durable, on a look that is fresh, and while nothing
// forbids it; all of that is asked once more at the last moment. // I1, I4, I19, I23, I24
//
//	runner.go      the runs of one cluster, each with a worker in a goroutine of its own
//	worker.go      the loop of one run: look, ask, save, act
//	look.go        everything one look reads; lookpower.go: its power half, kube.go: what it needs of
//	               the cluster, queue.go: whose turn it is to read the API
//	act.go         one action, and what is watched while a destructive write is under way
//	lastmoment.go  what is asked once more just before a destructive action
//	confirmation.go  what is asked on a manual confirmation
//	record.go      the audit entry of an action; the record of the run is saved in worker.go
//	reread.go, pending.go  after a save that failed
//	inbox.go       orders of people
//	clock.go       whether this host's clock was set since the record was saved
//
// "What hurts" in these comments is an action that is Destructive. "Undone" is an action that was
// announced and then not done.
package run
