// Package client connects to the API servers of a cluster. It reads what a caller names, past every cache, and
// takes no answer for one that is not the API server's. It decides nothing and writes nothing by itself.
//
//	server.go     one API server, and those of one cluster
//	connect.go    from a kubeconfig to connections
//	transport.go  what each request is held to: size, time, repetition, clocks
//	read.go       uncached reads, and which answers count // I2
//	discovery.go  the kinds, and the version at which one is served
//	leases.go     who holds a Lease of another controller // I22
//	shared.go     one read for all that need the same answer at the same time
package client
