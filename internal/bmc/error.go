package bmc

import (
	"errors"
	"fmt"
)

// Kind classes what went wrong between fenced and a BMC. The values are stable:
// they are part of reason codes and metrics.
type Kind string

// The kinds of error. Auth and Privilege are never retried: BMCs lock accounts.
const (
	KindUnreachable Kind = "Unreachable" // no answer in time
	KindRefused     Kind = "Refused"     // the port is closed
	KindAuth        Kind = "Auth"        // user or password refused
	KindPrivilege   Kind = "Privilege"   // the account may not do this
	KindSessions    Kind = "Sessions"    // the BMC has no session left
	KindBusy        Kind = "Busy"        // the BMC asks to come back later
	KindUnsupported Kind = "Unsupported" // the BMC cannot do what is needed
	KindIdentity    Kind = "Identity"    // the service does not know the named system, or another machine answers
	KindTLS         Kind = "TLS"         // the certificate is not the trusted one
	KindProtocol    Kind = "Protocol"    // an answer that breaks the protocol
)

// RefusesAccount says whether the device refused the account or what it may do. Asking
// again may lock the account.
func (k Kind) RefusesAccount() bool { return k == KindAuth || k == KindPrivilege }

// Sent says whether a command reached the BMC.
type Sent uint8

// After SentMaybe, read the state before you send the command again.
const (
	SentNo Sent = iota
	SentMaybe
	SentYes
)

// Error is every error of a Power.
type Error struct {
	Kind Kind
	Op   string // "read power state", "send off", "open session"
	Addr string // host:port or URL without user information
	Sent Sent
	Err  error // the cause; never holds a secret
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s of %s: %v", e.Op, e.Addr, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Retryable says whether trying again inside the deadline can help.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case KindAuth, KindPrivilege, KindUnsupported, KindIdentity, KindTLS:
		return false
	}
	return true
}

// KindOf gives the kind of a Power's error, KindProtocol for one that is not
// typed, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindProtocol
}
