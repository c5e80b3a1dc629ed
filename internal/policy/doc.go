// Package policy says WHETHER a target may be fenced. It holds the health of
// one target, the counting and the short circuit of a check, and the guards
// that no check knows about.
//
// It is pure: the same Snapshot and the same now give the same Report, so the
// daemon, `fencectl simulate` and the tests run the very same code. It reads no
// clock, starts no goroutine and talks to nobody.
//
//	Snapshot --Decide--> Report --Guards--> the engine starts a run, or says why not
//
// Words: a check is one MachineHealthCheck; a target is one Machine with its
// Node under one check; a verdict is what the check thinks of the target; a
// refusal is a stable Reason that forbids the action now.
//
// Read decide.go first: it is the order of the rules from top to bottom.
// health.go judges one target, limit.go is the short circuit, overlap.go and
// controlplane.go look across checks, guards.go is what the daemon adds.
package policy
