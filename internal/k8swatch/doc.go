// Package k8swatch is the one door to Kubernetes: watches in, few writes out,
// plain values of internal/policy and internal/remediate inside. No other
// package of the product imports client-go.
//
//	cluster.go  the clients of one cluster, and its life
//	store.go    one kind's objects as plain values
//	watch.go    the reflectors, and what is trimmed away
//	fresh.go    is the view as new as the API says it should be? // I16
//	look.go     the uncached reads of one run's round
//	act.go      the writes, each bound to UID and resourceVersion // I2
//	restore.go  which labels, annotations and taints come back
//
// The cache is only for deciding whether to look closer. Everything that
// justifies a write is read afresh.
package k8swatch
