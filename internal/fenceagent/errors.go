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

// kindError is a cause whose kind was known where it arose.
type kindError struct {
	kind bmc.Kind
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

func unsupported(format string, args ...any) error {
	return &kindError{bmc.KindUnsupported, fmt.Errorf(format, args...)}
}

// shown is a cause with the text that people may see of it. It does not unwrap
// to what an agent wrote, which may repeat a secret.
type shown string

func (s shown) Error() string { return string(s) }

// fail makes the typed error of an operation.
func (c *Client) fail(op string, sent bmc.Sent, err error) error {
	kind, cause := bmc.KindProtocol, error(shown(c.scrub(err.Error())))
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

// complaints are the sentences that agents of ClusterLabs end with, in small
// letters. "Unable to connect/login" is said of a dead device and of a wrong
// password alike, and must not look like a refused account.
var complaints = []struct {
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

// complain makes an error of an agent that ended badly.
func (c *Client) complain(end ending) error {
	err := fmt.Errorf("exit status %d: %s", end.code, end.complaint())
	all := strings.ToLower(string(end.stderr))
	for _, known := range complaints {
		if strings.Contains(all, known.text) {
			return &kindError{known.kind, err}
		}
	}
	return err
}

// scrub makes text fit to show: without secrets, even when an agent repeats
// them, without control characters, and not long. // I25
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
