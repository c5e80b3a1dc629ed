// Package admit decides which targets of one cluster are remediated, and starts their
// runs.
//
// The deciding goroutine updates the cluster.Model from the watch. It holds the ledger of
// policy and the runs. Each target that a check wants remediated is a candidate. Its gates
// are evaluated twice: first with what is known already, and again after a probe has read
// its BMC and the API server without any cache. A candidate whose gates all pass becomes a
// run, which package run carries out.
//
// An order from a person passes the same gates. Explain and Plan call the same functions
// and start nothing.
//
// The way of a run, in reading order:
//
//	cluster.go   the parts of one cluster
//	decide.go    the deciding goroutine: actions of the checks -> candidates -> probe -> start
//	facts.go     the facts for the guards, and how far the view can be relied on
//	probe.go     the first look at a target; probe_reads.go: what it reads of its BMC and of the cluster;
//	             evidence.go: a BMC that reads Off ends a wait, if the check allows it
//	justify.go   whether somebody still asks for a run, by fresh objects, and while the run is open whether who asked
//	             still does. By the view, package cluster says it
//	start.go     a candidate becomes a run: reserve, record, save; a Waiting run that is due begins step 1 again
//	refused.go   what is refused, and how the checks have changed; told once per change, at a limited pace
//	explain.go   why a target is remediated or not; the plan for all targets of all checks
//	scope.go     what the configuration allows, and whether it is more than before; new policies.d
//	ownhost.go   leaves the cluster to the others while the own host is sick
//
// Orders from people are in orders.go, with retries and dry runs. Remediation requests are in requested.go: they become
// runs, and are told about them. What package escalate needs of the admission is in escalation.go.
//
// A run is saved before its first action. If the save fails, nothing is done. // I19
package admit
