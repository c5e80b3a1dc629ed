package bmclib

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxRaw  = 64
	maxText = 300 // of an error text, in bytes
)

// fail returns the *bmc.Error of an operation.
func (c *Client) fail(ctx context.Context, op string, sent bmc.Sent, err error) error {
	text := err.Error()
	kind := kindOf(err)
	if _, known := errors.AsType[*bmc.KindError](err); !known && c.kind.protocol == bmc.ProtocolIPMI {
		text, kind = classifyIpmitool(ctx, err)
	}
	if kind == bmc.KindProtocol && ctx.Err() != nil {
		kind = bmc.KindUnreachable // a request that was cut may end in any error
	}
	var cause error = bmc.SafeText(bmc.Scrubbed(text, maxText, c.device.Password.Reveal()))
	if ended := ctx.Err(); ended != nil {
		cause = fmt.Errorf("%w (%w)", cause, ended)
	}
	return &bmc.Error{Kind: kind, Op: op, Addr: c.device.String(), Sent: sent, Err: cause}
}

// kindOf classifies errors of requests.
func kindOf(err error) bmc.Kind {
	if e, ok := errors.AsType[*bmc.KindError](err); ok {
		return e.Kind
	}
	if kind := bmc.KindOfTransport(err); kind != "" {
		return kind
	}
	switch {
	case strings.Contains(err.Error(), "net/http: request canceled"): // without a type, and a moment before ctx has ended
		return bmc.KindUnreachable
	case strings.Contains(err.Error(), "no matching redfish system found"):
		return bmc.KindIdentity // several systems behind one service
	case strings.Contains(err.Error(), "is not supported by this service"):
		return bmc.KindUnsupported // the reset type
	}
	return bmc.KindProtocol
}

// classifyIpmitool interprets ipmitool's error message. It is the same for a dead
// BMC and for a wrong account, and must never count as a refused account: that
// would end the level at once.
func classifyIpmitool(ctx context.Context, err error) (string, bmc.Kind) {
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
