package bmclib

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bmc-toolbox/bmclib/v2/providers/asrockrack"

	"github.com/fenced/fenced/internal/bmc"
)

// Only the tests change these: a busy machine delays them by more.
var (
	dialTimeout   = 3 * time.Second
	tlsTimeout    = 5 * time.Second
	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Second // for a body that is not needed
)

const (
	maxHeader = 64 << 10
	maxBody   = 1 << 20
)

// guard is the transport of a provider. It binds every request to the context of
// the operation, restricts it to the BMC and the configured system, limits the
// answer, and records what the provider does not report.
type guard struct {
	endpoint  bmc.Endpoint
	provider  string
	transport *http.Transport
	client    *http.Client
	// refusedLate is the newest refusal of a login that was given up; all transports of a Client share it.
	refusedLate *atomic.Pointer[lateRefusal]

	mu       sync.Mutex
	ctx      context.Context
	err      error // of the last request without an answer
	status   int   // of the last error answer
	switched bmc.Sent
	who      bmc.Identity
	only     *bmc.Identity // the only machine that may be switched; nil = any
}

func newGuard(d bmc.Device, provider string, conf *tls.Config, refusedLate *atomic.Pointer[lateRefusal]) *guard {
	g := &guard{endpoint: d.Endpoint, provider: provider, refusedLate: refusedLate, transport: &http.Transport{
		// No Proxy: credentials are sent to the BMC and nowhere else.
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:        conf,
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true,
	}}
	jar, _ := cookiejar.New(nil) // never fails, according to its source
	g.client = &http.Client{Transport: g, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the BMC redirects: not followed") // a redirected POST could look accepted
	}}
	return g
}

// begin binds later requests to ctx. The providers use contexts only for a
// timeout that they compute at login. If only is set, only that machine may be
// switched.
func (g *guard) begin(ctx context.Context, only *bmc.Identity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ctx, g.err, g.status, g.switched, g.who, g.only = ctx, nil, 0, bmc.SentNo, bmc.Identity{}, only
	g.client.Timeout = 0
}

// RoundTrip sends req, unless its URL is not allowed, and reads the answer.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	resp, err := g.send(req)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err != nil:
		g.err = err
		return nil, err
	case resp.StatusCode >= http.StatusBadRequest:
		g.status = resp.StatusCode
	}
	if isPowerCommand(req) && resp.StatusCode < http.StatusInternalServerError {
		g.switched = bmc.SentYes // it arrived, and was accepted or refused
	}
	return resp, nil
}

func (g *guard) send(req *http.Request) (*http.Response, error) {
	if err := g.checkURL(req.URL); err != nil {
		return nil, err
	}
	g.mu.Lock()
	ctx := g.ctx
	if isPowerCommand(req) {
		if err := bmc.Over(ctx, time.Now()); err != nil { // I19
			g.mu.Unlock()
			return nil, err
		}
		if g.only != nil {
			if err := identityError(*g.only, g.who); err != nil {
				g.mu.Unlock()
				return nil, err
			}
		}
		g.switched = bmc.SentMaybe
	}
	g.mu.Unlock()
	req = req.Clone(ctx)
	req.Close = false // one TLS handshake for all requests
	if isPowerCommand(req) {
		req.Header.Del("If-Match") // some firmware rejects it on every action
	}
	if isLogin(req) {
		return g.login(ctx, req)
	}
	return g.exchange(req)
}

// exchange sends req and reads the answer, whole if its body is needed.
func (g *guard) exchange(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	resp, err := g.transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if !bmc.NeedsBody(resp) {
		late := time.AfterFunc(bodyTimeout, cancel)
		defer late.Stop()
	}
	body, err := bmc.ReadBody(resp, maxBody+1)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer: %w", err)
	case len(body) > maxBody:
		return nil, bmc.WithKind(bmc.KindProtocol, fmt.Errorf("the answer is larger than %d bytes", maxBody))
	}
	if resp.StatusCode == http.StatusOK && req.Method == http.MethodGet {
		if err := g.inspect(req.URL.Path, body); err != nil {
			return nil, err
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

// isPowerCommand reports whether req can change the power state.
func isPowerCommand(req *http.Request) bool {
	return req.Method == http.MethodPost && (strings.Contains(req.URL.Path, "/Actions/") || strings.Contains(req.URL.Path, "/api/actions/"))
}

// checkURL rejects a URL outside the BMC and the configured system: a provider
// uses the only system of the service, whichever it is at the time. // I8, I10
func (g *guard) checkURL(u *url.URL) error {
	if !g.endpoint.Serves(u) {
		return bmc.WithKind(bmc.KindProtocol, fmt.Errorf("the request was not sent, because its URL is on another service, %q", u.Scheme+"://"+u.Host))
	}
	system := g.endpoint.System
	if system == "" {
		return nil
	}
	asked := path.Clean(u.Path)
	collection := path.Dir(system) + "/"
	if strings.HasPrefix(asked, collection) && asked != system && !strings.HasPrefix(asked, system+"/") {
		return bmc.WithKind(bmc.KindIdentity, fmt.Errorf("the service has the system %s, which is not the configured %s; "+
			"bmclib cannot choose between several, so use the native driver", asked, system))
	}
	return nil
}

// sent returns whether a command may have arrived since begin.
func (g *guard) sent() bmc.Sent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.switched
}

// identity is the identity in the last answer.
func (g *guard) identity() bmc.Identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.who
}

// cause returns the cause of a provider's error, if it was seen in a request: the
// providers return only text.
func (g *guard) cause(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.err != nil:
		return g.err
	case g.status != 0:
		return statusError(g.status)
	}
	return err
}

// statusError is the error of an answer with an error status.
func statusError(status int) error {
	return bmc.WithKind(bmc.KindOfStatus(status), fmt.Errorf("the BMC answered HTTP %d %s", status, http.StatusText(status)))
}

// loginTimeout is how long to wait for the answer to a login after ctx ended, to
// end the session that it may have started.
const loginTimeout = 10 * time.Second

// isLogin reports whether req starts a session, of Redfish or of the web interface of ASRock Rack.
func isLogin(req *http.Request) bool {
	asked := strings.TrimSuffix(req.URL.Path, "/")
	return req.Method == http.MethodPost && (strings.HasSuffix(asked, "/Sessions") || strings.HasSuffix(asked, "/api/session"))
}

// lateRefusal is the refusal of a login whose caller had stopped waiting.
type lateRefusal struct {
	at     time.Time
	status int
}

// login sends req beyond the end of ctx: a session that nobody ends would use one
// of the BMC's few sessions. If it is refused then, the next login learns it:
// another try would count towards a lockout. It uses a new connection: the BMC may
// be ending the last one, and a login, which may open a session, is not repeated.
func (g *guard) login(ctx context.Context, req *http.Request) (*http.Response, error) {
	if late := g.refusedLate.Swap(nil); late != nil && time.Since(late.at) < loginTimeout {
		return nil, statusError(late.status)
	}
	g.transport.CloseIdleConnections()
	type answer struct {
		resp *http.Response
		err  error
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTimeout)
	done := make(chan answer, 1)
	go func() {
		resp, err := g.exchange(req.Clone(own))
		done <- answer{resp, err}
	}()
	select {
	case a := <-done:
		cancel()
		return a.resp, a.err
	case <-ctx.Done():
		go func() {
			defer cancel()
			switch a := <-done; {
			case a.err != nil:
			case bmc.KindOfStatus(a.resp.StatusCode).RefusesAccount():
				g.refusedLate.Store(&lateRefusal{time.Now(), a.resp.StatusCode})
			default:
				g.forget(own, req, a.resp)
			}
		}()
		return nil, ctx.Err()
	}
}

// forget ends the session that resp started.
func (g *guard) forget(ctx context.Context, req *http.Request, resp *http.Response) {
	defer g.transport.CloseIdleConnections()
	session, err := req.URL.Parse(resp.Header.Get("Location"))
	token := resp.Header.Get("X-Auth-Token")
	if err != nil || token == "" || g.checkURL(session) != nil {
		return
	}
	end, err := http.NewRequestWithContext(ctx, http.MethodDelete, session.String(), nil)
	if err != nil {
		return
	}
	end.Header.Set("X-Auth-Token", token)
	_, _ = g.exchange(end) // otherwise the BMC's own timeout ends the session
}

// inspect reads the identity in an answer, and checks that a power state that the
// provider will use is really in it.
func (g *guard) inspect(path string, body []byte) error {
	if repeated, ok := errors.AsType[*bmc.RepeatedError](bmc.CheckNames(body)); ok {
		return bmc.WithKind(bmc.KindProtocol, repeated) // the provider would take the last value // I1
	}
	if g.provider == asrockrack.ProviderName {
		if strings.HasSuffix(path, "/api/chassis-status") {
			return hasPowerStatus(body)
		}
		return nil
	}
	if who, ok := systemIdentity(body); ok {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.who = who
	}
	return nil
}

// hasPowerStatus returns an error if power_status is missing: the provider reads
// a missing one as 0, which is off. // I1
func hasPowerStatus(body []byte) error {
	var chassis struct {
		PowerStatus *int `json:"power_status"`
	}
	if err := json.Unmarshal(body, &chassis); err != nil || chassis.PowerStatus == nil {
		return bmc.WithKind(bmc.KindProtocol, errors.New("the answer about the chassis has no power status"))
	}
	return nil
}

// systemIdentity returns the identity in a Redfish ComputerSystem.
func systemIdentity(body []byte) (bmc.Identity, bool) {
	var system struct {
		Type         string `json:"@odata.type"`
		UUID         string
		SerialNumber string
	}
	if json.Unmarshal(body, &system) != nil || !strings.HasPrefix(system.Type, "#ComputerSystem.") {
		return bmc.Identity{}, false
	}
	return bmc.Identity{UUID: bmc.Printable(system.UUID, maxIdentity), Serial: bmc.Printable(system.SerialNumber, maxIdentity)}, true
}

const maxIdentity = 64

// identityError returns an error if another machine answers than the one that was
// read. A device that reports no identity cannot be compared; it is used only if
// it was enrolled.
func identityError(read, answers bmc.Identity) error {
	if read == answers {
		return nil
	}
	return bmc.WithKind(bmc.KindIdentity, fmt.Errorf("system %q (serial %q) was read, but %q (serial %q) answers now; no command was sent",
		read.UUID, read.Serial, answers.UUID, answers.Serial))
}
