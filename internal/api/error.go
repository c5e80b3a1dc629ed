package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fenced/fenced/internal/wire"
)

// The codes of errors that are not a gate's refusal.
const (
	CodeBadRequest       = "BadRequest"
	CodeNotAuthorised    = "NotAuthorised"
	CodeNotFound         = "NotFound" // no such route
	CodeNoSuchRun        = "NoSuchRun"
	CodeMethodNotAllowed = "MethodNotAllowed"
	CodeConflict         = "Conflict"
	CodeTooLarge         = "TooLarge"
	CodeInternal         = "Internal"
	CodeTimeout          = "Timeout"
)

// ErrUnreachable is in the chain of every client error that means: no daemon
// answered on the socket.
var ErrUnreachable = errors.New("fenced is not reachable")

// Error is every answer of the API that is not a success.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
	// Status is the HTTP status.
	Status int `json:"-"`
	// Body is the answer as it came, for a client.
	Body []byte `json:"-"`
}

func (e *Error) Error() string { return e.Message }

// Refused is the error of an order that a gate forbids; reason is the gate's
// stable code.
func Refused(code, message, hint string) *Error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: code, Message: message, Hint: hint}
}

// NotFound is the error of a name that the daemon does not know; code says of what.
func NotFound(code, message, hint string) *Error {
	return &Error{Status: http.StatusNotFound, Code: code, Message: message, Hint: hint}
}

// Conflict is the error of an order that cannot be combined with what is going
// on there; code says what that is.
func Conflict(code, message, hint string) *Error {
	return &Error{Status: http.StatusConflict, Code: code, Message: message, Hint: hint}
}

// BadRequest is the error of a request that cannot be understood.
func BadRequest(message, hint string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: CodeBadRequest, Message: message, Hint: hint}
}

func notAuthorised(p Peer, need wire.Role, what string) *Error {
	return &Error{
		Status:  http.StatusForbidden,
		Code:    CodeNotAuthorised,
		Message: fmt.Sprintf("%s may not %s: it needs role %s", p.Actor(), what, need),
		Hint:    "ask an administrator to add you to control.roles in fenced.yaml",
	}
}

// errorOf gives the answer to any error of the daemon.
func errorOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Status: http.StatusGatewayTimeout, Code: CodeTimeout, Message: err.Error()}
	}
	return &Error{Status: http.StatusInternalServerError, Code: CodeInternal, Message: err.Error(),
		Hint: "see the journal: journalctl -u fenced"}
}
