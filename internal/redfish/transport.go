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
	maxErrorBody = 64 << 10 // of an error answer: text for people
	maxRedirects = 3
)

// transport is the RoundTripper for gofish. It keeps requests on the BMC's own
// host, limits what is read, retries while the BMC is busy, notices its restarts,
// and counts requests.
type transport struct {
	base     http.RoundTripper
	endpoint bmc.Endpoint
	// restart is called at each sign that the BMC may have restarted.
	restart func()
	seen    restartDetector
	sent    atomic.Int64
	read    lastConnection                   // of the last answer to a GET
	carried atomic.Int64                     // actions that were sent on a connection
	shown   atomic.Pointer[x509.Certificate] // the last certificate of the BMC
}

// RoundTrip sends req, unless its URL is not allowed. It reads the whole answer,
// so reading the body cannot fail later.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if err := t.checkURL(req.URL); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	// gofish closes the connection after each request if it is given an HTTP
	// client. That would mean one TLS handshake per request.
	req.Close = false
	return t.retryWhileBusy(req)
}

// once sends req and reads the answer.
func (t *transport) once(req *http.Request) (*http.Response, error) {
	t.sent.Add(1)
	var fresh atomic.Bool
	var conn net.Conn
	strange := false
	traced := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { // called before anything is written, in the goroutine of RoundTrip
			fresh.Store(!got.Reused)
			conn = got.Conn
			if strange = !t.mayCarry(req, conn); strange {
				_ = conn.Close() // req cannot be written to it then
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
		t.read.record(conn, resp.Close)
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
	if t.seen.indicatesRestart(fresh.Load(), isBasic(req), resp.Close, time.Now()) {
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

// checkURL refuses a URL outside the configured scheme, host and port. BMCs
// return links, action targets and redirects as text. Appended to our address,
// "@elsewhere/" is a URL on another host, which would receive our session
// token. // I10
func (t *transport) checkURL(u *url.URL) error {
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

// checkRedirect follows redirects of reads only; RoundTrip keeps them on the BMC.
// A redirected POST could become a GET, whose 200 would look like an accepted
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
