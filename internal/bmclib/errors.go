package bmclib

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/fenced/fenced/internal/bmc"
)

// kindError is a cause whose kind was known where it arose.
type kindError struct {
	kind bmc.Kind
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

// shown is a cause with the text that people may see of it. It does not unwrap
// to what a provider made, which may hold what was sent.
type shown string

func (s shown) Error() string { return string(s) }

// fail makes the typed error of an operation.
func (c *Client) fail(ctx context.Context, op string, sent bmc.Sent, err error) error {
	text := err.Error()
	kind := kindOf(err)
	if _, known := errors.AsType[*kindError](err); !known && c.kind.protocol == bmc.ProtocolIPMI {
		text, kind = ipmitoolSays(ctx, err)
	}
	if kind == bmc.KindProtocol && ctx.Err() != nil {
		kind = bmc.KindUnreachable // net/http may word a cut request in a way that no error type tells
	}
	var cause error = shown(c.scrub(text))
	if ended := ctx.Err(); ended != nil {
		cause = errors.Join(cause, ended)
	}
	return &bmc.Error{Kind: kind, Op: op, Addr: c.device.String(), Sent: sent, Err: cause}
}

// scrub makes text fit to show: without the password, even when a BMC repeats
// it, without control characters, and not long. // I25
func (c *Client) scrub(text string) string {
	if p := c.device.Password.Reveal(); p != "" {
		text = strings.ReplaceAll(text, p, "[redacted]")
	}
	return bmc.Printable(text, maxText)
}

// kindOf classes what was seen on the wire.
func kindOf(err error) bmc.Kind {
	if e, ok := errors.AsType[*kindError](err); ok {
		return e.kind
	}
	var timeout interface{ Timeout() bool }
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, network := errors.AsType[*net.OpError](err)
	switch {
	case certificate:
		return bmc.KindTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return bmc.KindRefused
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout(), network,
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return bmc.KindUnreachable
	case strings.Contains(err.Error(), "no matching redfish system found"):
		return bmc.KindIdentity // several systems behind one service
	case strings.Contains(err.Error(), "is not supported by this service"):
		return bmc.KindUnsupported // the reset type
	}
	return bmc.KindProtocol
}

// ipmitoolSays reads ipmitool's complaint. It has one sentence for a dead BMC and
// for a wrong account, and this one must never look like a refused account:
// that would end the level at once.
func ipmitoolSays(ctx context.Context, err error) (string, bmc.Kind) {
	text := err.Error()
	lower := strings.ToLower(text)
	switch {
	case errors.Is(err, errLate), ctx.Err() != nil:
		return "ipmitool did not end in time and was killed", bmc.KindUnreachable
	case strings.Contains(lower, "unable to establish"):
		return "ipmitool could not open a session; it does not tell a dead BMC from a refused account, password or cipher suite", bmc.KindUnreachable
	case strings.Contains(lower, "insufficient privilege"), strings.Contains(lower, "privilege level"):
		return text, bmc.KindPrivilege
	case strings.Contains(lower, "insufficient resources"):
		return text, bmc.KindSessions
	case strings.Contains(lower, "node busy"):
		return text, bmc.KindBusy
	case strings.Contains(lower, "address lookup"):
		return text, bmc.KindUnreachable
	}
	return text, kindOf(err)
}
