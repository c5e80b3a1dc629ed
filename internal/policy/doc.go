// Package policy decides WHETHER a target may be fenced. It holds the health
// rules of each API family, the limits of a check, the effects of checks and
// budgets on one another, and the protection of the control plane.
//
// It is pure: the same Snapshot and the same time give the same Report, so the
// daemon, `fencectl simulate` and the tests use the same code. It reads no
// clock, starts no goroutine and does no I/O.
//
//	Snapshot --Decide--> Report --Guards--> the engine starts a run, or says why not
//	Change   --Ledger--> the same Report, evaluating only what the change touches
//
// Terms: a check is one MachineHealthCheck of OpenShift or the Cluster API, one
// NodeHealthCheck or one FencePolicy. A target is one Machine with its Node, or
// one Node, under one check. A verdict is the check's result for the target. A
// refusal is a stable reason.Code that forbids the action now.
//
// Read decide.go first: it is the order of the rules from top to bottom.
//
//	snapshot.go, check.go, decide.go   what goes in, what a check is, what comes out
//	target.go        one target: its verdict, then action and refusals
//	family.go         the API families of checks, and that of OpenShift; clusterapi.go, medik8s.go, fencepolicy.go: one each
//	escalation.go, request.go   how a check asks another remediator; the requests that fenced carries out
//	host.go          which BareMetalHost a Machine has, and which hosts must be left alone
//	owner.go         whether a Machine owns the Node that it names, and when that is in doubt
//	space.go         in which namespaces Machines and requests count
//	shared.go, controlplane.go   across checks: overlaps and budgets, the control plane
//	author_limit.go  how many checks and targets of one author count; the checks of the ledger
//	tables.go        the objects by what is asked of them; what a check covers
//	ledger.go        the incremental form, for the daemon; ledger_*.go: what changes it, what it answers
//	explain.go       the same for people
//
// Package guard holds the guards that the daemon adds.
package policy
