// Package manifest decodes Kubernetes objects into values of internal/policy. It
// is the only decoder for the daemon's watches, for files in policies.d and for
// `fencectl simulate`, so that the same object has the same meaning everywhere.
// Only Nodes and Pods, of which there are many, are decoded elsewhere.
//
// It is strict about values and lenient about keys that others own: a field that
// fenced reads and that is invalid makes the object undecodable, never a zero
// value. An undecodable object is recorded, so that it never counts as absent. An
// undecodable check stays, as Invalid.
//
// Functions named after a kind (Machine, Node, ...) decode one object. Objects
// collects whole files. DecodePolicies reads policies.d, where unknown keys are
// errors too.
package manifest
