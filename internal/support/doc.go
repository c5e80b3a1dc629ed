// Package support collects what somebody needs to know who looks into a problem of one fenced,
// without any secret, in one archive: the support bundle.
//
//	collect.go  the parts of a bundle, in their order: what the daemon answers, the configuration,
//	            the audit log, the metrics, versions, the unit and its journal
//	bundle.go   the archive: limits of size and time, and the MANIFEST; and what no part may hold
//
// It asks with the rights of whoever runs it: the daemon's socket with the role of the caller, and
// files as the caller may read them. So nobody gets more than he may read without it. It opens no
// kubeconfig, key or password. // I25
//
// Whatever cannot be read is a line of the MANIFEST, never a failure: a bundle is made when things
// do not work.
package support
