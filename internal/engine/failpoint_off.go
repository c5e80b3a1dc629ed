//go:build !failpoint

package engine

// withFailpoints changes nothing in the shipped binary.
func withFailpoints(o Options) Options { return o }
