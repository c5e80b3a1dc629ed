// Package cluster holds what is known about one cluster: the ledger of policy, the runs, and what other
// remediators were asked. One lock protects all of it, so that only one of two candidates that exclude each
// other becomes a run. Nothing here does I/O. // I11
//
// In reading order:
//
//	model.go     changes, open runs and time -> policy.Ledger; what others read
//	runs.go      the runs, and what other remediators were asked as if it were runs
//	draft.go     the run that a target would become: a candidate
//	ask.go       whether somebody still asks for a run, by the view
//	reserve.go   a place under the limits: for a new run, a Waiting one, and what others are asked
//	count.go     what the limits count: Nodes, starts, places in flight and in a zone, the history of a host
//	deletions.go the limits of runs that delete a Machine; which Machines were never Ready
//	objects.go   the objects of the cluster and of a target; storm.go: storm recovery of a check that is read again
//	requests.go  the remediation requests, each with its run; records.go: what other remediators were asked
//	limits.go    the limits, which a reload replaces
package cluster
