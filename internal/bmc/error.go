package bmc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
)

// Kind classifies an error between fenced and a BMC. The values are stable: they
// are part of reason codes and metrics.
type Kind string

// The kinds of error. Auth and Privilege are never retried: BMCs lock accounts.
const (
	KindUnreachable Kind = "Unreachable" // no answer in time
	KindRefused     Kind = "Refused"     // the port is closed
	KindAuth        Kind = "Auth"        // user or password refused
	KindPrivilege   Kind = "Privilege"   // the account may not do this
	KindSessions    Kind = "Sessions"    // the BMC has no session left
	KindBusy        Kind = "Busy"        // the BMC asks to try again later
	KindUnsupported Kind = "Unsupported" // the BMC cannot do what is needed
	KindIdentity    Kind = "Identity"    // the service does not know the configured system, or another machine answers
	KindTLS         Kind = "TLS"         // the certificate is not trusted
	KindProtocol    Kind = "Protocol"    // the answer violates the protocol
)

// RefusesAccount reports whether the device refused the account or an operation
// of it. Trying again may lock the account.
func (k Kind) RefusesAccount() bool { return k == KindAuth || k == KindPrivilege }

// Sent is whether a command reached the BMC.
type Sent uint8

// After SentMaybe, read the state before sending the command again.
const (
	SentNo Sent = iota
	SentMaybe
	SentYes
)

// Error is the type of every error of a Power.
type Error struct {
	Kind Kind
	Op   string // "read power state", "send off", "open session"
	Addr string // host:port or URL without user information
	Sent Sent
	Err  error // the cause; contains no secret
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s of %s: %v", e.Op, e.Addr, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// KindError is a cause whose Kind a driver knows where it finds it.
type KindError struct {
	Kind Kind
	Err  error
}

// WithKind gives a cause its Kind.
func WithKind(k Kind, err error) error { return &KindError{k, err} }

func (e *KindError) Error() string { return e.Err.Error() }

func (e *KindError) Unwrap() error { return e.Err }

// KindOf returns the Kind of a Power's error, KindProtocol for another error, and
// "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindProtocol
}

// KindOfStatus maps the HTTP status of a failed Redfish request to a Kind.
func KindOfStatus(status int) Kind {
	switch status {
	case http.StatusUnauthorized:
		return KindAuth
	case http.StatusForbidden:
		return KindPrivilege
	case http.StatusNotFound, http.StatusGone:
		return KindIdentity
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return KindUnsupported
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return KindBusy
	}
	return KindProtocol
}

// KindOfTransport returns the Kind of an error of a connection: of TCP, of TLS, of a name, of a limit
// in time; "" for any other error.
func KindOfTransport(err error) Kind {
	var timeout interface{ Timeout() bool }
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, network := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	switch {
	case certificate:
		return KindTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return KindRefused
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout(), network, name,
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return KindUnreachable
	}
	return ""
}
