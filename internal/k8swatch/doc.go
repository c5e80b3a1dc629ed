// Package k8swatch is the one door to Kubernetes: watches in, few writes out,
// plain values of internal/policy and internal/remediate inside. No other
// package of the product imports client-go.
//
//	cluster.go    one cluster: the workload API, and a management API if apart
//	side.go       one API server: its clients and its watches
//	kinds.go      what is watched, and where
//	discovery.go  at which version a kind is served
//	requests.go   the kinds of requests that checks' templates name
//	store.go      one kind's objects as plain values
//	journal.go    what changed since somebody asked
//	mixed.go      several Clusters, and the Nodes of one
//	fresh.go      is the view as new as the API says it should be? // I16
//	look.go       the uncached reads of one run's round
//	rival.go      who else acts already, or would // I22
//	leader.go     which of the other controllers are alive
//	judge.go      who writes the status of a check
//	act.go        the writes, each bound to UID and resourceVersion // I2
//	mark.go       handing a Cluster API Machine to its owner
//	status.go     what a check's own controller would write into its status
//	restore.go    which labels, annotations and taints come back
//
// The cache is only for deciding whether to look closer. Everything that
// justifies a write is read afresh.
package k8swatch
