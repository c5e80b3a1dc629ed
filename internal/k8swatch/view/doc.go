// Package view is the cached view of one cluster: what is watched, as plain values of internal/policy, what
// changed, and how current all of it is. It only decides whether to look closer; package look reads again
// without the cache what justifies a write.
//
//	cache.go     one cluster: the workload API, and a management API if separate
//	side.go      what is watched on an API server
//	watch.go     lists and watches of one kind
//	store.go     the objects of one kind as plain values
//	convert.go   from an object to a plain value
//	journal.go   what changed since somebody asked
//	fresh.go     is the view as new as the API? // I16
//	requests.go  the kinds of requests that the templates of checks name, and where they count
//	survey.go    everything once, for the first configuration
package view
