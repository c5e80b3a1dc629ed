// Package look reads past the cache what justifies a step of a run: the Node, its Lease and its pods, the Machine and its
// host, and whether another remediator would act, too. What cannot be read stays unknown.
//
//	look.go     the uncached reads of one step of a run
//	machine.go  of these, its Machine and its BareMetalHost
//	rival.go    other remediators that act, or would act // I22
//	leader.go   which of the other controllers are alive
//	survey.go   who is there, for the first configuration
package look
