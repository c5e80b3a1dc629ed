// Package guard holds a run back: limits, clocks, rates, identity, other remediators. It
// knows what must hold before anything is switched, whichever check or person asks. It is
// pure: the caller gathers the Facts, and the Gates say which of them forbid the run.
package guard
