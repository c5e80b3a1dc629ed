// Package apiserver is a stand-in for kube-apiserver: a Kubernetes API in memory, over HTTP and TLS. It serves the
// kinds that fenced touches, and any custom resource by its definition. It starts in milliseconds, holds
// 500,000 Nodes, and a test can set its clock, forget its history and make it fail.
//
// Codecs, patches, selectors, validation of metadata and schemas, and the text of errors come from apimachinery and
// kube-openapi. What is written here is what k8s.io/apiserver does around them.
//
// A conformance suite runs against this stand-in and against the real kube-apiserver. A behaviour on which fenced
// or a test relies is a row there. What has no row here does not exist or is not promised: server-side apply, tables,
// watches of one object by path, garbage collection and its propagation policies, managed fields, field validation, CEL,
// conversion webhooks, admission beyond namespaces, RBAC objects, and validation of built-in kinds beyond builtin.go.
// A test that shows Kubernetes' own behaviour runs on the real one, of package rig.
package apiserver
