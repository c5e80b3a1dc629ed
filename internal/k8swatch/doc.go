// Package k8swatch is the only access to Kubernetes: watches in, few writes out,
// plain values of internal/policy and internal/remediate inside. No package outside
// this directory imports client-go. This package only joins the parts:
//
//	client  connections, uncached reads, where a kind is served
//	view    the cached view, what changed in it, and how current it is
//	look    the reads past the cache, and who else would act
//	write   the writes
//
// The cached view only decides whether to look closer. Everything that justifies
// a write is read again without the cache.
package k8swatch
