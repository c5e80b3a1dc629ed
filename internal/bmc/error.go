package bmc

import (
	"errors"
	"fmt"
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
