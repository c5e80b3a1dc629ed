// Package cluster holds what is known about one cluster. The Objects are the ledger of policy; the Runs are those of
// fenced, and what other remediators were asked. The Model joins them: what begins a run holds both locks from the count
// to the place, so that only one of two candidates that exclude each other becomes a run. Nothing here does I/O. // I11
//
// In reading order:
//
//	model.go     both: changes, open runs and time -> policy.Ledger; the limits, which a reload replaces
//	objects.go   what the watch shows, and what the checks find in it; the objects of a target
//	runs.go      the runs, and what other remediators were asked
//	draft.go     the run that a target would become: a candidate
//	reserve.go   a place under the limits: for a new run, a Waiting one, and what others are asked; whether somebody still
//	             asks for a run, by the view
//	count.go     what the limits count: Nodes, starts, places in flight and in a zone, the history of a host, deletions
//	observed.go  what was seen of the objects since the start: storms, Machines that were never Ready, long health
//	requests.go  the remediation requests, each with its run
package cluster
