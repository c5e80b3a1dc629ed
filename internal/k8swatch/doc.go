// Package k8swatch is the only access to Kubernetes: watches in, few writes out,
// plain values of internal/policy and internal/remediate inside. No package outside
// this directory imports client-go. Package client has the connections, package write
// the writes; here are the view and the looks, and what joins all of it.
//
//	cluster.go   one cluster: the workload API, and a management API if separate
//	side.go      what is watched on an API server
//	store.go     the objects of one kind as plain values, and what changed
//	convert.go   from an object to a plain value
//	watch.go     lists and watches of one kind
//	fresh.go     is the view as new as the API? // I16
//	requests.go  the kinds of requests that the templates of checks name, and where they count
//	look.go      the uncached reads of one step of a run
//	machine.go   of these, its Machine and its BareMetalHost
//	rival.go     other remediators that act, or would act // I22
//	leader.go    which of the other controllers are alive
//	survey.go    one look at a cluster, for the first configuration
//
// The cached view only decides whether to look closer. Everything that justifies
// a write is read again without the cache.
package k8swatch
