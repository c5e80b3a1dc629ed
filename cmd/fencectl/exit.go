package main

import "fmt"

// Exit statuses: a contract with scripts.
const (
	exitOK            = 0
	exitFailure       = 1  // error
	exitDegraded      = 2  // degraded, or changes would be made
	exitRefused       = 3  // refused by a gate; its reason code is on stderr
	exitNotAuthorised = 4  // the caller's role does not allow it
	exitUnreachable   = 5  // the daemon does not answer
	exitTimeout       = 6  // timed out waiting; the run goes on
	exitConflict      = 7  // something else is going on there
	exitUsage         = 64 // the command line is wrong
)

// exitError ends the program with code. A nil err prints nothing: the output
// has said it all.
type exitError struct {
	code int
	err  error
	hint []string // what to do about it, up to the corrected command line
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a wrong command line and how to write it.
func usageError(err error, hint ...string) *exitError {
	return &exitError{code: exitUsage, err: err, hint: hint}
}
