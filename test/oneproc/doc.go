// Package oneproc, imported for its effect by tests in virtual time, keeps them to one
// processor while the race detector is on. Two goroutines of a testing/synctest bubble
// that take an expired timer at the same moment share one context of the detector, which
// then ends the process with "CHECK failed" (golang/go#78156, Go 1.26). What happens
// before what is judged as before.
package oneproc
