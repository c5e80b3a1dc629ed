// Package manifest turns Kubernetes objects into policy's values. It is the one
// decoder for the daemon's watches, for files in policies.d and for `fencectl
// simulate`, so that the same object means the same everywhere. Only Nodes and
// Pods, of which there are many, come to the watches typed.
//
// It is strict about values and lenient about keys that others own: a field
// that fenced reads and that is not what it should be makes the object
// undecodable, never a zero value. An undecodable object is remembered, so that
// nobody takes it for absent; an undecodable check stays, as Invalid.
//
// Functions named after a kind (Machine, Node, ...) take the content of one
// object; Objects gathers whole files; DecodePolicies reads policies.d, where
// unknown keys are errors too.
package manifest
