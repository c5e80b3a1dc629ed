// Package remediate says WHAT NEXT for one target: the six steps of power
// remediation as one pure function.
//
// The engine around it does, for each open run, the same four things for ever:
//
//	look   read the BMC and the cluster afresh            -> Seen
//	ask    Next(run, seen, now)                           -> run', Action, wait
//	save   run', durably, by compare-and-set (if changed)
//	act    perform Action; its outcome is only what the next look sees
//
// Nothing is done when the save failed. Every command is absolute, so doing it
// again is harmless; a crash, a restart, a hand-over and a stop are therefore
// the same case: load the run, look, ask. A read that failed is Unknown, an
// observation like any other: there is no second error path.
//
// The only step that cannot be undone is the isolation of the Node (deleting
// it, or tainting it out-of-service). Everything before it ends, on any doubt,
// with the host powered back on; everything after it goes forward.
package remediate
