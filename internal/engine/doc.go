// Package engine joins the parts of the daemon. The control API calls it.
//
// For each cluster it creates a cluster.Model (what is known), an admit.Freshness (how far the
// view can be relied on), a lead.Lead (the right to act), a hosts.Cluster (which machine a
// host is) and an admit.Cluster (from a target to a run). All clusters share one stop.Stop,
// one hosts.Hosts, one power.LockOut and the lead.Slots.
//
//	engine.go        New and Run; cluster.go: the parts of one cluster
//	order.go         orders from people: fence, confirm, retry, unfence, abort; arm.go: arm, disarm
//	stops.go         pause, resume, hold, release; implements stop.Cluster
//	status.go        what people read: status, report, coverage, explain, plan, runs
//	lookup.go        single records and objects, for package report
//	statuswriter.go  writes the status of checks to the cluster; requestwriter.go: that of requests
//	resync.go        reads what other instances have written; prune.go: removes old records
//	lead.go          implements lead.Cluster; hosts.go: implements hosts.View
//
// New gets everything that the engine needs as values and small interfaces. Run stops when
// its context ends.
package engine
