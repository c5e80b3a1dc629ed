//go:build !failpoint

package engine

// failpoint does nothing in the shipped binary.
func failpoint(...string) {}
