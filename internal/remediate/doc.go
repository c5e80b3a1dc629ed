// Package remediate says WHAT NEXT for one target: the six steps of power
// remediation as one pure function.
//
// Package run repeats four things for each open run:
//
//	look   read the BMC and the cluster afresh            -> Observation
//	ask    Next(run, observation, now)                    -> run', Action, wait
//	save   run', durably, by compare-and-set (if changed)
//	act    perform Action; only the next look shows its outcome
//
// If the save fails, nothing is done. Every command is absolute, so repeating it is
// harmless. A crash, a restart, a hand-over and a stop are therefore the same case:
// load the run, look, ask. A read that failed is Unknown, an observation like any
// other: there is no second error path.
//
// The only step that cannot be undone is the isolation of the Node (deleting
// it, or tainting it out-of-service). Before it, any doubt ends the run with the host powered
// back on. After it, the run only goes forward.
//
//	run.go, record.go   the record; what others read in it
//	observation.go   what one look found, and the actions
//	identity.go      whether a look shows the objects of the record
//	steps.go         Next, how the record changes, and what a wrong clock may do to its times
//	poweroff.go      step 1, the proof of off and the Lease; levels.go: power levels
//	isolate.go       step 2, which isolates the Node
//	poweron.go       step 3, the way back of an abandoned run, and when pods are deleted
//	restore.go       steps 4 to 6, and when the next attempt or step 6 follows
//	idle.go          a run that waits, or needs a person
//	interlocks.go    the table of what forbids a run to go on
//	orders.go        unfence, abort, retry, and the manual confirmation
package remediate
