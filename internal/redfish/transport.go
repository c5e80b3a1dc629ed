package redfish

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxBody      = 1 << 20
	maxErrorBody = 64 << 10 // of an answer that is an error: text for people
	maxRedirects = 3
)

// transport is the RoundTripper beneath gofish. It keeps requests on the BMC's
// own host, bounds what is read, asks again when the BMC is busy, notices its
// restarts, and counts.
type transport struct {
	base     http.RoundTripper
	endpoint bmc.Endpoint
	// restart is called at each sign that the BMC may have restarted.
	restart func()
	seen    sightings
	sent    atomic.Int64
	read    path                             // of the last answer to a GET
	carried atomic.Int64                     // actions that were given to a connection
	shown   atomic.Pointer[x509.Certificate] // what the BMC showed last
}

// RoundTrip sends req, unless it goes elsewhere, and returns an answer that is
// read whole: no error is left to find in the body.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if err := t.foreign(req.URL); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	// gofish closes the connection after each request of a client that has its
	// own HTTP client: one TLS handshake per request.
	req.Close = false
	return t.persist(req)
}

// once sends req and reads the answer.
func (t *transport) once(req *http.Request) (*http.Response, error) {
	t.sent.Add(1)
	var fresh atomic.Bool
	var conn net.Conn
	strange := false
	traced := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { // before anything is written, by the goroutine of RoundTrip
			fresh.Store(!got.Reused)
			conn = got.Conn
			if strange = !t.carry(req, conn); strange {
				_ = conn.Close() // so that req cannot be written
			}
		},
	}))
	resp, err := t.base.RoundTrip(traced)
	if strange {
		err = errOtherConnection
	}
	if err != nil {
		t.restart()
		return nil, err
	}
	if req.Method == http.MethodGet {
		t.read.was(conn, resp.Close)
	}
	defer resp.Body.Close()
	limit := int64(maxBody)
	if resp.StatusCode >= http.StatusBadRequest {
		limit = maxErrorBody
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		t.restart()
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if int64(len(b)) > limit {
		if limit == maxBody {
			return nil, failf(bmc.KindProtocol, "the answer is larger than %d bytes", maxBody)
		}
		b = b[:limit]
	}
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		t.shown.Store(resp.TLS.PeerCertificates[0])
	}
	if t.seen.restarted(fresh.Load(), isBasic(req), resp.Close, time.Now()) {
		t.restart()
	}
	return answer(req, resp.StatusCode, resp.Header, b), nil
}

func answer(req *http.Request, status int, h http.Header, body []byte) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
}

// foreign refuses a URL outside the configured scheme, host and port. BMCs give
// links, action targets and redirects as text, and "@elsewhere/" pasted behind
// our address is a URL on another host, with our session token. // I10
func (t *transport) foreign(u *url.URL) error {
	scheme, port := "https", "443"
	if t.endpoint.Plain {
		scheme, port = "http", "80"
	}
	if p := u.Port(); p != "" {
		port = p
	}
	if u.Scheme == scheme && u.User == nil && strings.EqualFold(u.Hostname(), t.endpoint.Host) && port == fmt.Sprint(t.endpoint.Port) {
		return nil
	}
	return failf(bmc.KindProtocol, "the BMC refers to another host, %q: not followed", u.Scheme+"://"+u.Host)
}

// errRedirected marks the error of a command that was redirected.
var errRedirected = errors.New("not followed")

// checkRedirect follows reads only (RoundTrip keeps them on the BMC itself). A
// redirected POST could turn into a GET, whose 200 would look like an accepted
// command.
func (t *transport) checkRedirect(req *http.Request, via []*http.Request) error {
	if via[0].Method != http.MethodGet {
		return failf(bmc.KindProtocol, "the BMC redirects a %s: %w", via[0].Method, errRedirected)
	}
	if len(via) > maxRedirects {
		return failf(bmc.KindProtocol, "the BMC redirects more than %d times", maxRedirects)
	}
	return nil
}

func isAction(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.Contains(req.URL.Path, "/Actions/")
}
