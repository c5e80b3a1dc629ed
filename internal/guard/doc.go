// Package guard holds back runs: limits, clocks, rates, identity, other
// remediators. It checks what must be true before any power command, whichever
// check or person asks for it. It is pure: the caller collects the Facts, and
// Gates returns the gates that pass and those that refuse.
package guard
