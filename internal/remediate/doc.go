// Package remediate says WHAT NEXT for one target: the six steps of power
// remediation as one pure function.
//
// The engine repeats four things for each open run:
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
package remediate
