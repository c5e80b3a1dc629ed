package fenceagent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// Client is one outlet behind a fence agent. It implements bmc.Power.
type Client struct {
	device bmc.Device
	timing bmc.Timing
	places searchPath
	// session never changes: each run of an agent is a session of its own, and a
	// restart of the device between two runs cannot be detected.
	session uint64
	// listedAt is when the agent's list was last read and contained the outlet.
	listedAt time.Time
}

var (
	_ bmc.Power     = (*Client)(nil)
	_ bmc.Describer = (*Client)(nil)
)

// sessions makes session numbers unique in the process.
var sessions atomic.Uint64

// New returns a Client; it runs nothing. It refuses an agent that switches no
// power, that is not installed, or that users other than root could have changed.
func New(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return newClient(d, t, systemPath) }

func newClient(d bmc.Device, t bmc.Timing, p searchPath) (*Client, error) {
	c := &Client{device: d, timing: t, places: p, session: sessions.Add(1)}
	if d.TLS != (bmc.TLS{}) {
		return nil, c.fail("open", bmc.SentNo, unsupported("a fence agent does not use the entry's tls; set the agent's own parameters, like ssl_insecure"))
	}
	if _, why := d.ConfigError(); why != "" {
		return nil, c.fail("open", bmc.SentNo, unsupported("%s", why))
	}
	if err := checkSwitchesPower(d.Agent); err != nil {
		return nil, c.fail("open", bmc.SentNo, err)
	}
	if _, err := p.find(d.Agent); err != nil {
		return nil, c.fail("open", bmc.SentNo, unsupported("%w", err))
	}
	return c, nil
}

// Read runs the agent's status action, and after an Off its list action.
func (c *Client) Read(ctx context.Context) (bmc.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	end, _, err := c.act(ctx, "status")
	if raw, ok := strange(end); err == nil && ok {
		return bmc.Reading{At: time.Now(), Session: c.session, State: bmc.Unknown, Raw: raw}, nil
	}
	if err == nil && end.code != 0 && end.code != 2 {
		err = c.agentError(end)
	}
	if err != nil {
		return bmc.Reading{}, c.fail("read power state", bmc.SentNo, err)
	}
	r := bmc.Reading{At: time.Now(), Session: c.session}
	if r.State, r.Raw = status(end); r.State == bmc.Off {
		confirmRawState(end, &r)
	}
	if r.State == bmc.Off {
		if err := c.confirmOff(ctx, &r); err != nil {
			return bmc.Reading{}, c.fail("read power state", bmc.SentNo, err)
		}
	}
	return r, nil
}

// Send runs the agent's on or off action. It is idempotent.
func (c *Client) Send(ctx context.Context, cmd bmc.Command) (bmc.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.SendTimeout)
	defer cancel()
	op := "send " + cmd.String()
	if cmd != bmc.CommandOff && cmd != bmc.CommandOn {
		return bmc.Receipt{}, c.fail(op, bmc.SentNo, unsupported("there is no such command"))
	}
	end, sent, err := c.act(ctx, cmd.String())
	if err == nil && end.code != 0 {
		err = c.agentError(end)
	}
	if err != nil {
		return bmc.Receipt{}, c.fail(op, sent, err)
	}
	already := lastLine(end.stdout) == "Success: Already "+strings.ToUpper(cmd.String())
	return bmc.Receipt{Already: already}, nil
}

// act runs one action of the agent. An agent that was started may have switched.
func (c *Client) act(ctx context.Context, action string) (result, bmc.Sent, error) {
	f, m, err := c.agent(ctx)
	if err != nil {
		return result{}, bmc.SentNo, err
	}
	stdin, err := input(c.device, m, action)
	if err != nil {
		return result{}, bmc.SentNo, unsupported("%w", err)
	}
	end, err := run(ctx, command{path: f.path, stdin: stdin, limit: maxOutput})
	if _, never := errors.AsType[*startError](err); never {
		return result{}, bmc.SentNo, err
	}
	end.agent = m
	return end, bmc.SentMaybe, err
}

// agent finds the agent again, so that an update is used, with its metadata.
func (c *Client) agent(ctx context.Context) (file, metadata, error) {
	f, err := c.places.find(c.device.Agent)
	if err != nil {
		return f, metadata{}, unsupported("%w", err)
	}
	m, err := cache.read(ctx, f)
	if err != nil && ctx.Err() == nil {
		err = unsupported("%w", err)
	}
	if err == nil {
		err = c.checkNames(m)
	}
	return f, m, err
}

// checkNames refuses what the device must not be with the agent under any of its names.
func (c *Client) checkNames(m metadata) error {
	if err := checkSwitchesPower(m.names...); err != nil {
		return err
	}
	for _, name := range m.names {
		d := c.device
		d.Agent = name
		if _, why := d.ConfigError(); why != "" {
			return unsupported("%s", why)
		}
	}
	return nil
}

// Describe returns the agent as the model: all devices of an agent may report a
// false Off together.
func (c *Client) Describe(ctx context.Context) (bmc.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	_, m, err := c.agent(ctx)
	if err != nil {
		return bmc.Description{}, c.fail("describe", bmc.SentNo, err)
	}
	return bmc.Description{Model: c.device.Agent, Firmware: bmc.Printable(m.Version, maxRaw)}, nil
}

// Close does nothing: no agent outlives its operation.
func (c *Client) Close(context.Context) error { return nil }

const (
	maxRaw  = 64
	maxText = 300
)

func unsupported(format string, args ...any) error {
	return bmc.WithKind(bmc.KindUnsupported, fmt.Errorf(format, args...))
}

// fail returns the *bmc.Error of an operation.
func (c *Client) fail(op string, sent bmc.Sent, err error) error {
	kind, cause := bmc.KindProtocol, error(bmc.SafeText(c.scrub(err.Error())))
	if e, ok := errors.AsType[*bmc.KindError](err); ok {
		kind = e.Kind
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
			return bmc.WithKind(known.kind, err)
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
	return bmc.Scrubbed(text, maxText, secrets...)
}
