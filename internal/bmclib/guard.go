package bmclib

import (
	"bytes"
	"context"
	"crypto/tls"
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
	"time"

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

	mu       sync.Mutex
	ctx      context.Context
	err      error // of the last request without an answer
	status   int   // of the last error answer
	switched bmc.Sent
	who      bmc.Identity
	only     *bmc.Identity // the only machine that may be switched; nil = any
}

func newGuard(d bmc.Device, provider string, conf *tls.Config) *guard {
	g := &guard{endpoint: d.Endpoint, provider: provider, transport: &http.Transport{
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
		return nil, &kindError{bmc.KindProtocol, fmt.Errorf("the answer is larger than %d bytes", maxBody)}
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
		return &kindError{bmc.KindProtocol, fmt.Errorf("the request was not sent, because its URL is on another service, %q", u.Scheme+"://"+u.Host)}
	}
	system := g.endpoint.System
	if system == "" {
		return nil
	}
	asked := path.Clean(u.Path)
	collection := path.Dir(system) + "/"
	if strings.HasPrefix(asked, collection) && asked != system && !strings.HasPrefix(asked, system+"/") {
		return &kindError{bmc.KindIdentity, fmt.Errorf("the service has the system %s, which is not the configured %s; "+
			"bmclib cannot choose between several, so use the native driver", asked, system)}
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
		return &kindError{bmc.KindOfStatus(g.status), fmt.Errorf("the BMC answered HTTP %d %s", g.status, http.StatusText(g.status))}
	}
	return err
}
