// Package engine joins the parts of the daemon, and is what the control API calls.
//
// For each cluster it makes one of each: admit.Book (what is known), admit.Freshness (how
// good the view is), lead.Lead (the right to act), hosts.Cluster (which machine is it) and
// admit.Cluster (from a target to a run). Over all clusters there are one stop.Stop, one
// hosts.Hosts, one power.LockOut and the lead.Slots.
//
//	engine.go    New and Run; cluster.go: the parts of one cluster
//	order.go     what people ask for: fence, confirm, retry, unfence, abort, arm
//	stops.go     pause, resume, hold, release
//	status.go    what people read: status, report, coverage, explain, plan, runs
//	tell.go      writes the status of checks back to the cluster
//	reload.go    takes in what other instances have written; prune.go drops what is old
//	led.go       the cluster as internal/lead sees it; hosts.go: as internal/hosts does
//
// It is started with everything it needs as values and small interfaces, and stops when
// its context ends.
package engine
