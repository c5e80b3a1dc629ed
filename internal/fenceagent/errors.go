package fenceagent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxRaw  = 64
	maxText = 300
)

// kindError is an error with a known Kind.
type kindError struct {
	kind bmc.Kind
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

func unsupported(format string, args ...any) error {
	return &kindError{bmc.KindUnsupported, fmt.Errorf(format, args...)}
}

// safeText is an error text that may be shown. It does not unwrap to the output
// of an agent, which may repeat a secret.
type safeText string

func (s safeText) Error() string { return string(s) }

// fail returns the *bmc.Error of an operation.
func (c *Client) fail(op string, sent bmc.Sent, err error) error {
	kind, cause := bmc.KindProtocol, error(safeText(c.scrub(err.Error())))
	if e, ok := errors.AsType[*kindError](err); ok {
		kind = e.kind
	}
	for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, ended) {
			kind, cause = bmc.KindUnreachable, fmt.Errorf("%w (%w)", cause, ended)
		}
	}
	return &bmc.Error{Kind: kind, Op: op, Addr: c.device.String(), Sent: sent, Err: cause}
}

// knownMessages are the last messages of ClusterLabs agents, in lower case.
// Agents print "Unable to connect/login" both for a dead device and for a wrong
// password, so it must not count as a refused account.
var knownMessages = []struct {
	text string
	kind bmc.Kind
}{
	{"do not have the correct privileges", bmc.KindPrivilege},
	{"does not have the correct privileges", bmc.KindPrivilege},
	{"unable to connect/login", bmc.KindUnreachable},
	{"connection lost", bmc.KindUnreachable},
	{"timed out", bmc.KindUnreachable},
	{"unable to obtain correct plug status", bmc.KindUnreachable},
}

// agentError returns the error of an agent that failed.
func (c *Client) agentError(end result) error {
	err := fmt.Errorf("exit status %d: %s", end.code, end.lastMessage())
	all := strings.ToLower(string(end.stderr))
	for _, known := range knownMessages {
		if strings.Contains(all, known.text) {
			return &kindError{known.kind, err}
		}
	}
	return err
}

// scrub makes text safe to show: without secrets, even if an agent repeats them,
// without control characters, and short. // I25
func (c *Client) scrub(text string) string {
	secrets := []string{c.device.Password.Reveal()}
	for _, s := range c.device.SecretParameters {
		secrets = append(secrets, s.Reveal())
	}
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[redacted]")
		}
	}
	return bmc.Printable(text, maxText)
}
