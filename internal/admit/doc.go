// Package admit decides which targets of one cluster are remediated, and starts their
// runs.
//
// The deciding goroutine updates the Book from the watch. The Book holds the ledger of
// policy and the runs. Each target that a check wants remediated is a candidate. Its gates
// are evaluated twice: first with what is known already, and again after a probe has read
// its BMC and the API server without any cache. A candidate whose gates all pass becomes a
// run, which package run carries out.
//
// An order from a person passes the same gates. Explain and Plan call the same functions
// and start nothing.
//
//	decide.go    the deciding goroutine: actions of the checks -> candidates -> probe -> start
//	book.go      changes, open runs and time -> policy.Ledger; book_read.go: what others read
//	runs.go      the runs, and what other remediators were asked as if it were runs; book_runs.go:
//	             the Book's methods for them
//	count.go     what the limits count: Nodes, starts, places in flight and in a zone, the history of a host
//	freshness.go how far the view can be relied on, and the quiet period after a gap
//	draft.go     the run that a candidate would become
//	facts.go     the facts for the guards
//	probe.go     the first look at a target; probe_power.go: its BMC, probe_cluster.go: the cluster
//	health.go    what the BMC health check knows, for explanations
//	refused.go   what is refused, told once per change; checks.go: the changes of the checks
//	start.go     a candidate becomes a run: reserve, record, save
//	resume.go    a Waiting run that is due begins step 1 again
//	reserve.go   a place under the limits: for a new run, a Waiting one, and what others are asked
//	ask.go       whether somebody still asks for a run, by the view; justify.go: by fresh objects;
//	             withdrawn.go: whether who asked still does, while the run is open
//	explain.go   why a target is remediated or not; plan.go: all targets of all checks
//	scope.go     what the configuration allows, and whether it is more than before
//	record.go    what is emitted, and saved in the audit log; uncertainsave.go: a save without an answer
//	deletions.go the limits of runs that delete a Machine; replacements.go: which Machines were
//	             never Ready; overdue.go: deletions that take too long
//	ownhost.go   leaves the cluster to the others while the own host is sick
//	backoff.go   the pause after a failed start
//	storm.go     storm recovery of a check that is read again
//	renamed.go   a host that registered under another name; target.go: the objects of a target
//	objects.go   the objects of the cluster, for package hosts
//	evidence.go  a BMC that reads Off ends a wait, if the check allows it
//	fence.go, confirm.go, retry.go   orders from people; confirm_evidence.go: what a person sees
//	             before a confirmation; byhand.go: dry runs
//	requested.go holds remediation requests; requestruns.go: their runs; requeststate.go: what
//	             they are told
//
// A run is saved before its first action. If the save fails, nothing is done. // I19
package admit
