// Package engine joins the parts of the daemon. The control API calls it.
//
// For each cluster it creates a cluster.Model (what is known), an admit.Freshness (how far the
// view can be relied on), a lead.Lead (the right to act), a hosts.Cluster (which machine a
// host is) and an admit.Cluster (from a target to a run). All clusters share one stop.Stop,
// one hosts.Hosts, one power.LockOut and the lead.Slots.
//
//	engine.go        New and Run; the heartbeat of all clusters
//	cluster.go       the parts of one cluster, and the cluster as lead, hosts and stop see it
//	orders.go        orders from people: fence, confirm, retry, unfence, abort, pause, hold, arm
//	hosts.go         the hosts, for the health check of BMCs and for people
//	status.go        what people read: status, report, coverage, explain, plan, runs, single records
//	statuswriter.go  writes the status of checks to the cluster; requestwriter.go: that of requests
//	records.go       reads what other instances have written, and removes old records
//	applyconfig.go   what a reload changes
//
// New gets everything that the engine needs as values and small interfaces. Run stops when
// its context ends.
package engine
