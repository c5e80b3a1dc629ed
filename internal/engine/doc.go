// Package engine does the world: for each cluster one goroutine decides, and
// for each open run one goroutine looks, asks, saves and acts, until the run
// ends. All judgement is elsewhere: internal/policy says whether a target may
// be fenced, internal/remediate says what to do next.
//
//	follow.go    changes, open runs and time -> policy.Ledger
//	decide.go    what the checks ask for -> candidates -> probe -> start
//	admit.go     the run that a target would become
//	facts.go     what the guards ask about it; explain and plan use the same
//	evidence.go  BMCs that read Off shorten a wait, where a check says so
//	worker.go    look, ask, save, act: the loop of one run
//	power.go     one session with a power level: readings, proof of off, commands
//	identity.go  whose power answers there
//	inventory.go every host for the health check, and what that found: pin.go, index.go
//	freeze.go    hosts whose BMC said Off while they lived
//	enroll.go    what people vouch for, and release
//	own.go       the host that this daemon runs on
//	order.go     what people ask for: fence, unfence, pause, resume, arm
//	tell.go      what was found goes back to the checks in the cluster
//
// The engine saves before it acts and does nothing when the save failed. // I19
// It is started with everything it needs as values and small interfaces, and
// stops between an action and the next look when its context ends.
package engine
