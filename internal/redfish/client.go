package redfish

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stmcginnis/gofish"

	"github.com/fenced/fenced/internal/bmc"
)

// Only the tests change these: a busy machine delays them by more.
var (
	dialTimeout   = 3 * time.Second
	tlsTimeout    = 5 * time.Second
	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Second // for a body that is not needed; less than minBootTime
	closeTimeout  = 2 * time.Second
)

const maxHeader = 64 << 10

// Client is the Redfish service of one BMC. It implements bmc.Power,
// bmc.Describer and bmc.Auditor.
type Client struct {
	device bmc.Device
	timing bmc.Timing
	http   *http.Client
	wire   *transport

	// number is Reading.Session. It is atomic because an abandoned login may still
	// run during the next operation.
	number atomic.Uint64
	// abandonedLogins has a channel for each; it closes when the session is
	// deleted.
	abandonedLogins []<-chan struct{}

	auth         auth
	basicRefused bool

	links            *links  // of the service root, after it was read
	logins           string  // URI for logins, if known
	uri              string  // of the system, after discovery
	byUUID           bool    // the system was found by its UUID, and must keep it
	lastSystem       *system // the last answer of the system, for its reset action
	lastSystemNumber uint64  // the session number of that answer
	// lastIdentity is who answered the last Read; nil before the first.
	lastIdentity *bmc.Identity
}

var (
	_ bmc.Power     = (*Client)(nil)
	_ bmc.Describer = (*Client)(nil)
	_ bmc.Auditor   = (*Client)(nil)
)

// numbers makes session numbers unique in the process: readings of two Clients
// must not look like one session.
var numbers atomic.Uint64

// New returns a Client; it sends nothing. The error names an unusable CA file or
// pin.
func New(d bmc.Device, t bmc.Timing) (*Client, error) {
	c := &Client{device: d, timing: t}
	conf, err := tlsConfig(d.TLS)
	if err != nil {
		return nil, c.fail("set up TLS", bmc.SentNo, err)
	}
	c.wire = &transport{
		base: &http.Transport{
			// No Proxy: credentials are sent to the BMC and nowhere else.
			DialContext:            (&net.Dialer{Timeout: dialTimeout, Control: d.Networks.Control}).DialContext,
			TLSClientConfig:        conf,
			TLSHandshakeTimeout:    tlsTimeout,
			ResponseHeaderTimeout:  headerTimeout,
			MaxResponseHeaderBytes: maxHeader,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        30 * time.Second,
			DisableCompression:     true,
		},
		endpoint: d.Endpoint,
		tls:      d.TLS,
		restart:  c.newNumber,
	}
	c.http = &http.Client{Transport: c.wire, CheckRedirect: c.wire.checkRedirect}
	return c, nil
}

// Requests is the number of HTTP requests sent so far.
func (c *Client) Requests() int { return int(c.wire.sent.Load()) }

// newNumber assigns a new session number: readings from before and after never
// support one proof. // I1
func (c *Client) newNumber() { c.number.Store(numbers.Add(1)) }

// do runs fn with a client of the service that is logged in and bound to ctx. If
// the BMC has forgotten the session, it logs in again, once.
func (c *Client) do(ctx context.Context, fn func(*gofish.APIClient) error) error {
	err := c.try(ctx, fn)
	if statusOf(err) != http.StatusUnauthorized || c.auth.session == nil {
		return err
	}
	refused := c.auth.session
	c.auth = auth{}
	err = c.try(ctx, fn)
	if statusOf(err) == http.StatusUnauthorized && c.auth.session != nil {
		// The BMC refuses a session that it has just created. Delete both, it has
		// few.
		c.abandon(ctx, refused, c.auth.session)
		c.auth = auth{}
	}
	return err
}

func (c *Client) try(ctx context.Context, fn func(*gofish.APIClient) error) error {
	if err := c.authenticate(ctx); err != nil {
		return err
	}
	api, err := c.connect(ctx, c.auth)
	if err != nil {
		return err
	}
	err = fn(api)
	if c.auth.limited && statusOf(err) == http.StatusUnauthorized {
		return c.markBasicRefused(err)
	}
	return err
}

// Close ends the session on the BMC, and those of abandoned logins.
func (c *Client) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	defer c.wire.base.CloseIdleConnections()
	var err error
	if c.auth.session != nil {
		err = c.endSession(ctx, c.auth.session)
	}
	c.auth = auth{}
	for _, done := range c.abandonedLogins {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	c.abandonedLogins = nil
	if err != nil {
		return c.fail("close session", bmc.SentNo, err)
	}
	return nil
}
