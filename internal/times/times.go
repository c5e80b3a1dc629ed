// Package times compares two instants. It is pure.
package times

import "time"

// Later returns the later of two instants; zero is before all others.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Earlier returns the earlier of two instants; zero is before all others.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Sooner returns the earlier of two instants at which something is due; zero means never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
