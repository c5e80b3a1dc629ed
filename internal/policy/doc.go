// Package policy says WHETHER a target may be fenced. It holds the health of
// one target by the rules of each lineage, the limits of a check, what checks
// and budgets do to one another, and the guards that no check knows about.
//
// It is pure: the same Snapshot and the same now give the same Report, so the
// daemon, `fencectl simulate` and the tests judge by the very same code. It
// reads no clock, starts no goroutine and talks to nobody.
//
//	Snapshot --Decide--> Report --Guards--> the engine starts a run, or says why not
//	Change   --Ledger--> the same Report, judging only what the change touches
//
// Words: a check is one MachineHealthCheck of OpenShift or the Cluster API, one
// NodeHealthCheck or one FencePolicy; a target is one Machine with its Node, or
// one Node, under one check; a verdict is what the check thinks of the target; a
// refusal is a stable Reason that forbids the action now.
//
// Read decide.go first: it is the order of the rules from top to bottom.
//
//	target.go        one target: its lineage's verdict, then action and refusals
//	openshift.go, clusterapi.go, medik8s.go, fencepolicy.go   the lineages' verdicts
//	limit.go         the limits, and clusterapi_limit.go and medik8s_limit.go beside it
//	claim.go         whose a Node is, and when nobody can say
//	overlap.go, budget.go, controlplane.go, quorum.go   across checks
//	ledger.go        the incremental form, for the daemon
//	guards.go        what the daemon adds; facts.go is what they are asked about
//	coverage.go, explain.go   the same for people
package policy
