// Package engine joins the parts: for each cluster one goroutine decides what is to be
// begun, and package run carries out what was begun. All judgement is elsewhere:
// internal/policy says whether a target may be fenced, internal/guard what holds that back,
// internal/remediate what to do next.
//
//	follow.go    changes, open runs and time -> policy.Ledger
//	decide.go    what the checks ask for -> candidates -> probe -> start
//	admit.go     the run that a target would become
//	facts.go     what the guards ask about it; explain and plan use the same
//	probe.go     the first look at a target: its BMC, then the cluster
//	start.go     a candidate becomes a run: place, record, save
//	judge.go     whether a run is still asked for, by fresh objects
//	evidence.go  BMCs that read Off shorten a wait, where a check says so
//	order.go     what people ask for: fence, unfence, abort, arm; stops.go: pause, hold
//	tell.go      what was found is written back to the checks in the cluster
//	led.go       the cluster as internal/lead and internal/run see it; hosts.go: as internal/hosts does
//
// The engine saves before it acts and does nothing when the save failed. // I19
// It is started with everything it needs as values and small interfaces, and
// stops between an action and the next look when its context ends.
package engine
