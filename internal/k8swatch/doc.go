// Package k8swatch is the only access to Kubernetes: watches in, few writes out,
// plain values of internal/policy and internal/remediate inside. No package outside
// this directory imports client-go. Package client has the
// connections, package write the writes.
//
//	cluster.go    one cluster: the workload API, and a management API if separate
//	side.go       one API server: its connections and its watches
//	kinds.go      what is watched, and where
//	requests.go   the kinds of requests that the templates of checks name, and in
//	              requestnamespaces.go where they count
//	store.go      the objects of one kind as plain values
//	journal.go    the changes since the last call
//	mixed.go      several Clusters, and the Nodes of one
//	fresh.go      is the view as new as the API? // I16
//	look.go       the uncached reads of one step of a run
//	rival.go      other remediators that act, or would act // I22
//	leader.go     which of the other controllers are alive
//	survey.go     one look at a cluster, for the first configuration
//	ahead.go      what a look reads before it knows the Machine
//	judge.go      who writes the status of a check
//
// The cached view only decides whether to look closer. Everything that justifies
// a write is read again without the cache.
package k8swatch
