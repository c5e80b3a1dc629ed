package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/fenced/fenced/internal/api"
)

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

// exitError ends the program with code. A nil err prints nothing, because the output has said it.
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

// requestError returns the exit status for an answer that is not a success. what describes the
// request.
func requestError(what string, err error) error {
	if errors.Is(err, api.ErrSilent) {
		return &exitError{code: exitUnreachable, err: fmt.Errorf("%s: %w", what, err),
			hint: []string{"it is stopped or hangs: systemctl status fenced; journalctl -u fenced", "systemctl restart fenced takes open runs up where they are"}}
	}
	if errors.Is(err, api.ErrUnreachable) {
		return &exitError{code: exitUnreachable, err: fmt.Errorf("%s: %w", what, err),
			hint: []string{"is it running? systemctl status fenced", "another socket is named with --socket"}}
	}
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", what, err)
	}
	exit := &exitError{code: exitFailure, err: fmt.Errorf("%s: failed (%s): %w", what, e.Code, err)}
	if e.Hint != "" {
		exit.hint = []string{e.Hint}
	}
	switch e.Status {
	case http.StatusForbidden:
		exit.code, exit.err = exitNotAuthorised, fmt.Errorf("%s: %w", what, err)
	case http.StatusConflict:
		exit.code, exit.err = exitConflict, fmt.Errorf("%s: conflict (%s): %w", what, e.Code, err)
		if e.Code == api.CodeSecondPersonNeeded {
			exit.code = exitRefused
			exit.err = fmt.Errorf("%s: not yet (%s): %w", what, e.Code, err)
		}
	case http.StatusUnprocessableEntity:
		exit.code = exitRefused
		exit.err = fmt.Errorf("%s: refused (%s): %w", what, e.Code, err)
	}
	return exit
}

// report prints an error, as every verb does, and returns its exit status.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	exit, ok := errors.AsType[*exitError](err)
	if !ok {
		exit = &exitError{code: exitFailure, err: err}
	}
	if exit.err != nil {
		fmt.Fprintf(w, "fencectl: %s\n", escapeControl(err.Error()))
	}
	for _, hint := range exit.hint {
		fmt.Fprintf(w, "hint: %s\n", escapeControl(hint))
	}
	return exit.code
}
