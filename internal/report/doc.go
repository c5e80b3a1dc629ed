// Package report tells people what fenced does where they look first: in the cluster. It
// writes Kubernetes Events about Nodes, Machines and checks, and marks the Node and the
// Machine of an open run with annotations.
//
// It reads the stream of events and the records of runs, and no part of a run waits for it.
// While an API server does not answer, what cannot be written is dropped.
package report
