// Package cluster holds what is known about one cluster. The Objects are the ledger of policy; the Runs are those of
// fenced, and what other remediators were asked. The Model joins them: what begins a run holds both locks from the count
// to the place, so that only one of two candidates that exclude each other becomes a run. Nothing here does I/O. // I11
//
// In reading order:
//
//	model.go     both: changes, open runs and time -> policy.Ledger
//	objects.go   what the watch shows, and what the checks find in it; the objects of a target
//	runs.go      the runs
//	draft.go     the run that a target would become: a candidate
//	ask.go       whether somebody still asks for a run, by the view
//	reserve.go   a place under the limits: for a new run, a Waiting one, and what others are asked
//	count.go     what the limits count: Nodes, starts, places in flight and in a zone, the history of a host
//	deletions.go the limits of runs that delete a Machine; which Machines were never Ready
//	storm.go     storm recovery of a check that is read again
//	requests.go  the remediation requests, each with its run; repairs.go: what other remediators were asked
//	limits.go    the limits, which a reload replaces
package cluster
