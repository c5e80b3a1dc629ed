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
//	steps.go         Next, and steps 4 AwaitNode and 5 RestoreNode
//	poweroff.go      step 1; evidence.go: the proof of off and the Lease; levels.go: power levels
//	isolate.go       step 2, which isolates the Node
//	poweron.go       step 3, and the way back of an abandoned run
//	reprovision.go   step 6; attempts.go: when the next attempt or step 6 follows
//	waiting.go       a run that goes on by itself later; idle.go: one that waits or needs a person
//	busy.go          a BMC without a free session; sessions.go: what the runs leave of its sessions
//	release.go       when the pods of an isolated Node are deleted
//	interlocks.go    the table of what forbids a run to go on
//	orders.go        unfence, abort, retry; confirmed.go: the manual confirmation
//	contradicted.go  outlets that read Off while the host's BMC reads On
//	transitions.go   how the record changes: enter a step, command, abandon, hold, finish
//	clock.go         what a wrong clock may do to deadlines; times.go: the fixed times
//	run.go           the record; target.go, request.go, origin.go: of what, for whom, and where from
//	observation.go   what one look found, and the actions
package remediate
