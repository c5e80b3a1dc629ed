package redfish

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/redfish"

	"github.com/fenced/fenced/internal/bmc"
)

// Only the tests change these: a busy machine delays them by more.
var (
	dialTimeout   = 3 * time.Second
	tlsTimeout    = 5 * time.Second
	headerTimeout = 10 * time.Second
	loginTimeout  = 10 * time.Second // of a login whose caller stopped waiting
	bodyTimeout   = time.Second      // for a body that is not needed; less than minBootTime
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
	// refusedLate is the newest refusal of such a login; nil without one.
	refusedLate atomic.Pointer[lateRefusal]

	auth         auth
	token        bmc.Secret // of the newest session, also after its end
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

// Read reads the power state and the identity, in one request.
func (c *Client) Read(ctx context.Context) (bmc.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	r, s, err := c.read(ctx)
	if err != nil {
		return bmc.Reading{}, c.fail("read power state", bmc.SentNo, err)
	}
	if s.repeated == nil { // else nobody knows who answered
		c.lastIdentity = &r.Identity
	}
	return r, nil
}

func (c *Client) read(ctx context.Context) (r bmc.Reading, s *system, err error) {
	err = c.do(ctx, func(api *gofish.APIClient) (err error) {
		if s, err = c.system(ctx, api); err == nil {
			r = s.reading(time.Now())
		}
		return err
	})
	r.Session = c.number.Load()
	return r, s, err
}

// Send sends an absolute power command; it is idempotent. If the BMC refuses it
// as invalid in the current state, Send reads the state: a host that is already
// in the wanted state is no error.
func (c *Client) Send(ctx context.Context, cmd bmc.Command) (bmc.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.SendTimeout)
	defer cancel()
	sent, err := c.send(ctx, cmd)
	if err == nil {
		return bmc.Receipt{}, nil
	}
	if status := statusOf(err); sent == bmc.SentYes && (status == http.StatusConflict || status == http.StatusBadRequest) {
		target, _ := wantedState(cmd)
		if r, _, readErr := c.read(ctx); readErr == nil && r.State == target {
			return bmc.Receipt{Already: true}, nil
		}
	}
	return bmc.Receipt{}, c.fail("send "+cmd.String(), sent, err)
}

// send sends cmd, again if the connection of the last reading has ended: it reads
// first then. If a service ends connections without a word, that shows at the second
// try, and the third asks for it.
func (c *Client) send(ctx context.Context, cmd bmc.Command) (sent bmc.Sent, err error) {
	for range 3 {
		sent, err = c.command(ctx, cmd)
		if !errors.Is(err, errOtherConnection) || sent != bmc.SentNo {
			break
		}
	}
	return sent, err
}

func (c *Client) command(ctx context.Context, cmd bmc.Command) (bmc.Sent, error) {
	sent := bmc.SentNo
	err := c.do(ctx, func(api *gofish.APIClient) error {
		sent = bmc.SentNo // second try after a 401, which carried out nothing
		s, err := c.resettable(ctx, api)
		if err != nil {
			return err
		}
		kind, err := s.reset.choose(cmd)
		if err != nil {
			return err
		}
		sent, err = c.post(ctx, s, kind, "")
		if needsETag(err) {
			sent, err = c.postWithETag(ctx, api, cmd, err)
		}
		return err
	})
	return sent, err
}

// resettable returns the system with its allowed reset types. If it was read on
// this session, it is not read again, so that a command after a read is one
// request. It must be the machine that answered the last Read: on another session
// or connection the address may lead to another machine. // I8
func (c *Client) resettable(ctx context.Context, api *gofish.APIClient) (*system, error) {
	s := c.lastSystem
	if s == nil || c.lastSystemNumber != c.number.Load() || c.auth.basic && c.wire.read.isClosing() {
		var err error
		if s, err = c.system(ctx, api); err != nil {
			return nil, err
		}
	}
	if s.repeated != nil {
		return nil, s.repeated
	}
	if c.lastIdentity != nil && *c.lastIdentity != s.identity {
		return nil, failf(bmc.KindIdentity, "system %q (serial %q) was read, but %q (serial %q) answers now; no command was sent",
			c.lastIdentity.UUID, c.lastIdentity.Serial, s.identity.UUID, s.identity.Serial)
	}
	if len(s.reset.types) == 0 && s.reset.info != "" {
		uri, err := c.wire.path(s.reset.info)
		if err != nil {
			return nil, err
		}
		types, err := actionInfo(api, uri)
		if err != nil {
			return nil, err
		}
		s.reset.types = types
	}
	return s, nil
}

// maxETag limits the length of an ETag, in bytes. A longer one is not used.
const maxETag = 256

// post sends the reset, with If-Match if etag is not empty. It returns whether the
// reset may have arrived.
func (c *Client) post(ctx context.Context, s *system, kind redfish.ResetType, etag string) (bmc.Sent, error) {
	target, err := c.wire.path(s.reset.target)
	if err != nil {
		return bmc.SentNo, err
	}
	before := c.wire.carried.Load()
	api, err := c.connect(withAction(ctx), c.auth)
	if err != nil {
		return bmc.SentNo, err
	}
	headers := map[string]string{}
	if etag != "" {
		headers["If-Match"] = etag
	}
	resp, err := api.PostWithHeaders(target, struct{ ResetType redfish.ResetType }{kind}, headers)
	if err == nil {
		resp.Body.Close()
		return bmc.SentYes, nil // 200, 201, 202 with a task, 204: accepted, but not proven
	}
	c.lastSystem = nil // the refusal may mean that it has changed
	status := statusOf(err)
	switch {
	case status >= 400 && status < 500:
		return bmc.SentYes, err
	case c.wire.carried.Load() != before:
		return bmc.SentMaybe, err
	}
	return bmc.SentNo, err
}

// needsETag reports whether a reset was refused because it had no If-Match: AMI
// MegaRAC answers 428, Huawei iBMC 412. The first try has none, because the ETag
// changes with the power state, and iDRAC 10 refuses it on every action.
func needsETag(err error) bool {
	status := statusOf(err)
	return status == http.StatusPreconditionFailed || status == http.StatusPreconditionRequired
}

// postWithETag reads the system again and sends the reset with its ETag, once. The
// reset is absolute, so nothing depends on the state that the ETag stands for. The
// machine must be the one that was read. // I3, I8
func (c *Client) postWithETag(ctx context.Context, api *gofish.APIClient, cmd bmc.Command, refusal error) (bmc.Sent, error) {
	s, err := c.resettable(ctx, api)
	if err != nil {
		return bmc.SentYes, err // the first one arrived, and was refused
	}
	if s.etag == "" {
		return bmc.SentYes, refusal
	}
	kind, err := s.reset.choose(cmd)
	if err != nil {
		return bmc.SentYes, err
	}
	return c.post(ctx, s, kind, s.etag)
}

// etagOf returns the ETag of a resource, "" if it has none that can be used.
func etagOf(o object, h http.Header) string {
	etag := h.Get("ETag")
	if etag == "" {
		etag = o.exact("@odata.etag")
	}
	if len(etag) > maxETag {
		return ""
	}
	return etag
}

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
