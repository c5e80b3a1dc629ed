package ipmi

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

var (
	errOtherAlgorithms = errors.New("the BMC answered with algorithms that were not requested")
	errWrongPassword   = errors.New("wrong password, or no such user")
	errWrongKey        = errors.New("the session key of the BMC is different")
	errNoBMCKey        = fmt.Errorf("%w: if the BMC has a key of its own (K_g), write it into a file and set kgFile", errWrongKey)
	errOtherBMCKey     = fmt.Errorf("%w: the key (K_g) in the kgFile is not that of the BMC", errWrongKey)

	errSilent  = errors.New("open session")
	errIgnored = errors.New("RAKP 1, which some BMCs do not answer for an unknown user")
)

// replacedError: RAKP 2 does not fit the password, but the BMC may have replaced
// the session before it answered.
type replacedError struct {
	took time.Duration // that the BMC needed to open the session
}

func (e *replacedError) Error() string {
	return errWrongPassword.Error() + ", or the BMC took a repeated open session request for another session"
}

func (e *replacedError) Unwrap() error { return errWrongPassword }

// statusError is a refusal during the handshake (table 13-15).
type statusError struct {
	message string // which of our messages was refused
	status  byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s refused: %s (status 0x%02x)", e.message, statusText(e.status), e.status)
}

func statusText(s byte) string {
	switch s {
	case 0x01, 0x0b:
		return "no session left"
	case 0x02, 0x08:
		return "session unknown or inactive"
	case 0x04, 0x05, 0x06, 0x07, 0x10, 0x11:
		return "algorithms not supported"
	case 0x09, 0x0a:
		return "the account may not have this privilege"
	case 0x0c, 0x0d, 0x0e:
		return "user refused"
	case 0x0f:
		return "integrity check failed"
	}
	return "handshake refused"
}

func (e *statusError) kind() bmc.Kind {
	switch e.status {
	case 0x01, 0x0b:
		return bmc.KindSessions
	case 0x04, 0x05, 0x06, 0x07, 0x10, 0x11:
		return bmc.KindUnsupported
	case 0x09, 0x0a:
		return bmc.KindPrivilege
	case 0x0c, 0x0d, 0x0e, 0x0f:
		return bmc.KindAuth
	}
	return bmc.KindProtocol
}

// codeError is a completion code other than success (table 5-2).
type codeError struct{ code byte }

func (e *codeError) Error() string {
	return fmt.Sprintf("the BMC answered %s (completion code 0x%02x)", codeText(e.code), e.code)
}

func codeText(c byte) string {
	switch c {
	case 0xc0, 0xc3, 0xd0, 0xd1, 0xd2:
		return "busy"
	case 0xc1:
		return "unknown command"
	case 0xd4:
		return "insufficient privilege"
	case 0xd5:
		return "not in the present state"
	}
	return "an error"
}

func (e *codeError) kind() bmc.Kind {
	switch e.code {
	case 0xc0, 0xc3, 0xd0, 0xd1, 0xd2:
		return bmc.KindBusy
	case 0xc1:
		return bmc.KindUnsupported
	case 0xd4:
		return bmc.KindPrivilege
	}
	return bmc.KindProtocol
}

// kindOf classifies every error below Read and Send.
func kindOf(err error) bmc.Kind {
	var kinded interface{ kind() bmc.Kind }
	switch {
	case errors.As(err, &kinded):
		return kinded.kind()
	case errors.Is(err, errWrongPassword):
		return bmc.KindAuth
	case errors.Is(err, errUnusableAccount):
		return bmc.KindUnsupported
	case errors.Is(err, errOtherAlgorithms), errors.Is(err, errWrongKey):
		return bmc.KindProtocol
	case errors.Is(err, syscall.ECONNREFUSED):
		return bmc.KindRefused
	}
	return bmc.KindUnreachable
}

// withDeadline returns err, with the error of ctx added if ctx ended early: both
// "no answer" and the deadline help to find the cause.
func withDeadline(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
