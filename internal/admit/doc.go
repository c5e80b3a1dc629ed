// Package admit decides which targets of one cluster are remediated, and begins their
// runs.
//
// The deciding goroutine brings the Book up to date with the watch: the Book holds the
// ledger of policy and the runs. Each target that a check wants remediated is a candidate.
// The guards are asked about it twice: first about what is known already, then, after a
// probe has asked its BMC and the API server past every cache, about everything. A
// candidate that no guard refuses becomes a run, which package run carries out.
//
// A person's order takes the same way. Explain and Plan ask the very same functions and
// begin nothing.
//
//	decide.go    the deciding goroutine: what the checks ask for -> candidates -> probe -> start
//	book.go      changes, open runs and time -> policy.Ledger; book_runs.go: the runs
//	freshness.go how good the view is, and the quiet period after its gaps
//	draft.go     the run that a candidate would become
//	facts.go     what the guards ask about it; count.go: the part that the Book knows
//	probe.go     the first look at a target; probe_power.go: its BMC, probe_cluster.go: the cluster
//	start.go     a candidate becomes a run: place, record, save
//	justify.go   whether a run is still asked for, by fresh objects
//	evidence.go  BMCs that read Off shorten a wait, where a check says so
//	fence.go, confirm.go, retry.go   what people ask for
//
// A run is saved before anything is done on it. If the save failed, nothing is done. // I19
package admit
