package bmclib

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// closeTimeout is how long a logout may take; only the tests change it.
var closeTimeout = 2 * time.Second

// lateReturn is how long after the end of its context a provider may take to
// return before it is abandoned.
const lateReturn = 200 * time.Millisecond

// Client is one BMC behind a provider of bmclib. It implements bmc.Power.
type Client struct {
	device bmc.Device
	timing bmc.Timing
	kind   providerSpec
	build  func() (provider, *guard, error)

	provider provider // nil before it is opened, and after a failure
	guard    *guard   // its transport; nil for ipmitool
	sent     bmc.Sent // of the last operation, from the guard
	session  uint64
	// lastIdentity is who answered the last Read, as far as known; nil before the
	// first.
	lastIdentity *bmc.Identity
	// refusedLate is the newest refusal of a login that was given up; nil without one.
	refusedLate atomic.Pointer[lateRefusal]
}

var (
	_ bmc.Power   = (*Client)(nil)
	_ bmc.Auditor = (*Client)(nil)
)

// sessions makes session numbers unique in the process.
var sessions atomic.Uint64

// New returns a Client; it sends nothing. It refuses what bmclib cannot do
// safely.
func New(d bmc.Device, t bmc.Timing) (bmc.Power, error) {
	return newClient(d, t, systemDirs)
}

func newClient(d bmc.Device, t bmc.Timing, dirs []string) (*Client, error) {
	c := &Client{device: d, timing: t}
	if _, why := d.ConfigError(); why != "" {
		return nil, c.refuse(errors.New(why))
	}
	var err error
	if c.kind, err = choose(d); err != nil {
		return nil, c.refuse(err)
	}
	c.build = func() (provider, *guard, error) {
		p, err := newIpmitool(d, dirs)
		return p, nil, err
	}
	if c.kind.protocol == bmc.ProtocolRedfish {
		if os.Getenv("DEBUG_BMCLIB") != "" { // it would print every request, including logins // I25
			return nil, c.refuse(errors.New("the environment has DEBUG_BMCLIB, which makes bmclib print passwords; unset it"))
		}
		conf, err := tlsConfig(d.TLS)
		if err != nil {
			return nil, &bmc.Error{Kind: bmc.KindTLS, Op: "open", Addr: d.String(), Err: err}
		}
		c.build = func() (provider, *guard, error) {
			g := newGuard(d, c.kind.name, conf, &c.refusedLate)
			return c.kind.build(d, g.client), g, nil
		}
	}
	if _, _, err := c.build(); err != nil {
		return nil, c.refuse(err)
	}
	return c, nil
}

func (c *Client) refuse(err error) error {
	return &bmc.Error{Kind: bmc.KindUnsupported, Op: "open", Addr: c.device.String(), Err: err}
}

// Read reads the power state. Only the provider's two exact texts are On and Off;
// everything else is Unknown.
func (c *Client) Read(ctx context.Context) (bmc.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	r, err := c.read(ctx)
	if err != nil {
		return bmc.Reading{}, c.fail(ctx, "read power state", bmc.SentNo, err)
	}
	c.lastIdentity = &r.Identity
	return r, nil
}

func (c *Client) read(ctx context.Context) (bmc.Reading, error) {
	var r bmc.Reading
	err := c.do(ctx, nil, func(p provider) error {
		text, err := p.PowerStateGet(ctx)
		r.State, r.Raw = c.kind.parse(text)
		return err
	})
	if err != nil {
		return bmc.Reading{}, err
	}
	r.At, r.Session = time.Now(), c.session
	if c.guard != nil {
		r.Identity = c.guard.identity()
		if u := r.Identity.UUID; c.device.SystemUUID != "" && bmc.UsableUUID(u) && !bmc.UUIDsMatch(u, c.device.SystemUUID) {
			return bmc.Reading{}, bmc.WithKind(bmc.KindIdentity,
				fmt.Errorf("the BMC answered for system %s, not for the configured %s", u, c.device.SystemUUID))
		}
	}
	return r, nil
}

// Send sends an absolute power command; it is idempotent.
func (c *Client) Send(ctx context.Context, cmd bmc.Command) (bmc.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.SendTimeout)
	defer cancel()
	if cmd != bmc.CommandOff && cmd != bmc.CommandOn { // I3: bmclib knows reset and cycle, too
		return bmc.Receipt{}, c.fail(ctx, "send", bmc.SentNo, bmc.WithKind(bmc.KindUnsupported, errors.New("there is no such command")))
	}
	receipt, sent, err := c.send(ctx, cmd)
	if err != nil {
		return bmc.Receipt{}, c.fail(ctx, "send "+cmd.String(), sent, err)
	}
	return receipt, nil
}

func (c *Client) send(ctx context.Context, cmd bmc.Command) (bmc.Receipt, bmc.Sent, error) {
	// Read the system before switching it: bmclib selects it again for each
	// command. It must be the machine that answered the last Read, and the guard
	// lets bmclib switch only that. // I8
	r, err := c.read(ctx)
	if err == nil && c.lastIdentity != nil {
		err = identityError(*c.lastIdentity, r.Identity)
	}
	if err != nil {
		return bmc.Receipt{}, bmc.SentNo, err
	}
	if c.kind.skipsOff && cmd == bmc.CommandOff {
		switch r.State {
		case bmc.Off: // bmclib sends nothing then, and cannot be made to
			return bmc.Receipt{Already: true}, bmc.SentNo, nil
		case bmc.Unknown:
			return bmc.Receipt{}, bmc.SentNo, fmt.Errorf("the power state reads %q, which bmclib treats as off, so it would not send the command", r.Raw)
		}
	}
	err = c.do(ctx, &r.Identity, func(p provider) error {
		ok, err := p.PowerSet(punctual{ctx}, cmd.String())
		if err == nil && !ok {
			err = errors.New("the provider reported that it did not switch the power, without a reason")
		}
		return err
	})
	sent := bmc.SentMaybe
	if c.guard != nil {
		sent = c.sent
	}
	return bmc.Receipt{Already: err == nil && sent == bmc.SentNo}, sent, err
}

// punctual is a ctx that is done when its time is over, also where no timer has noticed that yet: bmclib reads before it commands, and
// asks nobody in between. // I19
type punctual struct{ context.Context }

var timeIsOver = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (p punctual) Err() error { return bmc.Over(p.Context, time.Now()) }

func (p punctual) Done() <-chan struct{} {
	if p.Err() != nil {
		return timeIsOver
	}
	return p.Context.Done()
}

// do runs f with an open provider. A failure ends the session: the next operation
// logs in again, and its readings support no older proof. If only is set, a
// command is sent to that machine only.
func (c *Client) do(ctx context.Context, only *bmc.Identity, f func(provider) error) error {
	if err := bmc.Over(ctx, time.Now()); err != nil { // I19
		return err
	}
	opened := c.provider != nil
	err := c.attempt(ctx, only, f)
	if opened && err != nil && kindOf(err) == bmc.KindAuth {
		// The BMC forgot the session; only a login can show that the account is
		// refused.
		err = c.attempt(ctx, only, f)
	}
	return err
}

func (c *Client) attempt(ctx context.Context, only *bmc.Identity, f func(provider) error) error {
	open := c.provider == nil
	if open {
		p, g, err := c.build()
		if err != nil {
			return err
		}
		c.provider, c.guard, c.session = p, g, sessions.Add(1)
	}
	p, g := c.provider, c.guard
	if g != nil {
		g.begin(ctx, only)
	}
	done := make(chan error, 1)
	go func() {
		if open && g != nil { // ipmitool has no session: its Open would only read the status again
			if err := p.Open(ctx); err != nil {
				done <- err
				return
			}
		}
		done <- f(p)
	}()
	err := waitShortly(ctx, done)
	if g != nil {
		c.sent = g.sent()
	}
	if err == nil {
		return nil
	}
	c.provider = nil
	if g != nil {
		cause := g.cause(err)
		go logout(ctx, p, g, done, errors.Is(err, errLate))
		err = cause
	}
	return err
}

var errLate = errors.New("the provider did not return in time")

// waitShortly waits for done until lateReturn after the end of ctx.
func waitShortly(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(lateReturn):
		return errors.Join(errLate, ctx.Err())
	}
}

// logout ends the session of a provider that failed, after it has returned.
func logout(ctx context.Context, p provider, g *guard, done <-chan error, late bool) {
	if late {
		<-done
	}
	end(ctx, p, g)
}

// end logs out, even after the end of ctx.
func end(ctx context.Context, p provider, g *guard) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	g.begin(ctx, nil)
	_ = p.Close(ctx) // otherwise the BMC's own timeout ends the session
	g.transport.CloseIdleConnections()
}

// Close ends the session on the BMC.
func (c *Client) Close(ctx context.Context) error {
	p, g := c.provider, c.guard
	c.provider, c.guard = nil, nil
	if p != nil && g != nil {
		end(ctx, p, g)
	}
	return nil
}

// Audit reports whether the BMC's certificate is verified.
func (c *Client) Audit(context.Context) ([]bmc.Finding, error) {
	if c.kind.protocol == bmc.ProtocolRedfish && (c.device.Endpoint.Plain || c.device.TLS.InsecureSkipVerify) {
		return []bmc.Finding{{Code: bmc.FindingCertificateTrust,
			Message: "the BMC's certificate is not verified: set tls.ca, or use the native driver with tls.pinSHA256"}}, nil
	}
	return nil, nil
}
