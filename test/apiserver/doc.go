// Package apiserver is a stand-in for kube-apiserver: a Kubernetes API in memory, over HTTP and TLS. It serves the kinds that fenced touches,
// and any custom resource by its definition. It holds 500,000 Nodes, and a test can set its clock, make it forget its history and make it fail.
//
// Codecs, patches, selectors, the frames of watches, validation of metadata and schemas, and the text of errors come from
// apimachinery, client-go and kube-openapi. What is written here is what k8s.io/apiserver does around them.
//
// A conformance suite runs against this stand-in and against the real kube-apiserver. A behaviour on which fenced
// or a test relies is a row there. A behaviour without a row is not promised. Refused are server-side apply, dry runs,
// deletion of collections, creation by an update, and what the table in kinds.go lacks. Ignored are field validation,
// managed fields, propagation policies, owners, and CEL. There are no tables, conversion webhooks, admission beyond
// namespaces, or RBAC objects, and of built-in kinds hardly more than the metadata is validated.
// A test that shows Kubernetes' own behaviour runs on the real one, of package rig.
package apiserver
