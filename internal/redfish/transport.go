package redfish

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxBody     = 1 << 20
	maxUnneeded = 64 << 10 // of a body that is not needed
)

// transport is the RoundTripper for gofish. It keeps requests on the BMC's own
// host, limits what is read, retries while the BMC is busy, notices its restarts,
// and counts requests.
type transport struct {
	base     *http.Transport
	endpoint bmc.Endpoint
	tls      bmc.TLS // for hints
	// restart is called at each sign that the BMC may have restarted.
	restart func()
	seen    restartDetector
	sent    atomic.Int64
	read    lastConnection                   // of the last answer to a GET
	carried atomic.Int64                     // actions that were sent on a connection
	shown   atomic.Pointer[x509.Certificate] // the last certificate of the BMC
	// basicWanted: the last login was refused with a demand for Basic
	// authentication.
	basicWanted atomic.Bool
}

// RoundTrip sends req, unless its URL is not allowed. It reads the body of the
// answer, so reading it cannot fail later.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if err := t.checkURL(req.URL); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	return t.retryWhileBusy(req)
}

// once sends req and reads the answer.
func (t *transport) once(req *http.Request) (*http.Response, error) {
	t.sent.Add(1)
	// gofish closes the connection after each request if it is given an HTTP
	// client. That would mean one TLS handshake per request.
	req.Close = t.seen.endsSilently()
	var fresh atomic.Bool
	var conn net.Conn
	var refused error
	var hello handshake
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	traced := req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { // called before anything is written, in the goroutine of RoundTrip
			fresh.Store(!got.Reused)
			conn = got.Conn
			if refused = t.mayCarry(req, conn); refused != nil {
				_ = conn.Close() // req cannot be written to it then
			}
		},
		TLSHandshakeDone: hello.done,
	}))
	resp, err := t.base.RoundTrip(traced)
	if refused != nil {
		err = refused
	}
	if err != nil {
		used := conn != nil && !fresh.Load()
		if errors.Is(refused, errOtherConnection) || used && endedByPeer(err) {
			t.seen.lostConnection(time.Now())
		}
		t.restart()
		if err = hello.explain(err, t.tls); used {
			err = &usedError{err}
		}
		return nil, err
	}
	answered, closing := time.Now(), resp.Close || req.Close
	if req.Method == http.MethodGet {
		t.read.record(conn, closing)
	}
	b, err := t.body(resp, cancel)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized {
		t.base.CloseIdleConnections() // what is left of a longer body would be taken for the answer to the login
	}
	if isLogin(req) {
		t.basicWanted.Store(resp.StatusCode == http.StatusUnauthorized && wantsBasic(resp.Header))
	}
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		t.shown.Store(resp.TLS.PeerCertificates[0])
	}
	if t.seen.indicatesRestart(fresh.Load(), isBasic(req), closing, answered) {
		t.restart()
	}
	return answer(req, resp.StatusCode, resp.Header, b), nil
}

// body reads the body of an answer, without its compression. Only one that is not
// needed may be incomplete; it is waited for less long. cancel ends the request.
func (t *transport) body(resp *http.Response, cancel context.CancelFunc) ([]byte, error) {
	defer resp.Body.Close()
	needed, limit := bmc.NeedsBody(resp), int64(maxBody)
	if !needed {
		limit = maxUnneeded
		late := time.AfterFunc(bodyTimeout, cancel)
		defer late.Stop()
	}
	b, err := bmc.ReadBody(resp, limit+1)
	if err != nil {
		t.restart()
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if int64(len(b)) <= limit {
		b, err = expand(resp.Header, b, limit)
	}
	switch {
	case !needed:
		return b[:min(int64(len(b)), limit)], nil // of a broken one, nothing
	case err != nil:
		return nil, err
	case int64(len(b)) > limit:
		return nil, failf(bmc.KindProtocol, "the answer is larger than %d bytes", limit)
	}
	return b, nil
}

func answer(req *http.Request, status int, h http.Header, body []byte) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
}

// expand returns the body of an answer without its compression. fenced asks for
// none; iLO 5 compresses large resources all the same. At most limit+1 bytes are
// expanded, so that the caller sees that there is more.
func expand(h http.Header, body []byte, limit int64) ([]byte, error) {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(h.Values("Content-Encoding"), ",")))
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
	default:
		return nil, failf(bmc.KindProtocol, "the answer has the encoding %q, which was not asked for", bmc.Printable(encoding, maxIdentity))
	}
	h.Del("Content-Encoding")
	if len(body) == 0 {
		return body, nil // 204
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, failf(bmc.KindProtocol, "expand the answer: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err != nil {
		return nil, failf(bmc.KindProtocol, "expand the answer: %w", err)
	}
	return b, nil
}

const (
	firstPause    = 250 * time.Millisecond
	maxPause      = 2 * time.Second
	maxRetryAfter = 5 * time.Second
)

// usedError is the error of a request on a connection that was used before: it may
// have ended meanwhile, or have held the rest of an earlier answer.
type usedError struct{ err error }

func (e *usedError) Error() string { return e.err.Error() }

func (e *usedError) Unwrap() error { return e.err }

// onceOrFresh sends req. If that fails on a connection that was used before, it sends
// a read or a delete once more, on a new one. What a lost action did is for the next
// reading to tell, and a lost login may have opened a session.
func (t *transport) onceOrFresh(req *http.Request) (*http.Response, error) {
	resp, err := t.once(req)
	if _, used := errors.AsType[*usedError](err); !used || req.Method == http.MethodPost || req.Context().Err() != nil {
		return resp, err
	}
	t.base.CloseIdleConnections()
	return t.once(req)
}

// retryWhileBusy repeats req while the BMC reports that it is busy and ctx lasts,
// and returns the last answer unchanged. Repeating is harmless: req is a read, a
// delete, or an absolute action. // I3
// A login is not repeated, because Basic authentication may replace it.
func (t *transport) retryWhileBusy(req *http.Request) (*http.Response, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		resp, err := t.onceOrFresh(req)
		if err != nil || !isBusy(resp) {
			return resp, err
		}
		if resp.StatusCode == http.StatusServiceUnavailable {
			t.restart() // a BMC that is starting answers like this
		}
		if isLogin(req) {
			return resp, nil
		}
		if !wait(req.Context(), retryAfter(resp.Header.Get("Retry-After"), pause, time.Now())) {
			return resp, nil
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

func isBusy(resp *http.Response) bool {
	return resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests
}

// retryAfter returns how long to wait: the value of the header, in seconds or as
// a date, at most maxRetryAfter; without a header pause, with jitter.
func retryAfter(header string, pause time.Duration, now time.Time) time.Duration {
	asked := time.Duration(-1)
	if n, err := strconv.ParseUint(header, 10, 16); err == nil {
		asked = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		asked = at.Sub(now)
	}
	if asked <= 0 {
		return pause + time.Duration((rand.Float64()-0.5)*0.4*float64(pause))
	}
	return min(asked, maxRetryAfter)
}

// wait sleeps for d. It returns false at once if ctx would end before.
func wait(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

const maxRedirects = 3

// errRedirected marks the error of a request that was redirected in a way that is
// not followed.
var errRedirected = errors.New("not followed")

// checkRedirect follows a redirect only on the BMC's own origin, and only if it
// keeps the method: that is 307 and 308, and all of them for a read. A redirected
// POST could otherwise become a GET, whose 200 would look like an accepted command.
// Credentials never leave the origin. // I10
func (t *transport) checkRedirect(req *http.Request, via []*http.Request) error {
	method := via[0].Method
	switch {
	case !t.endpoint.Serves(req.URL):
		return failf(bmc.KindProtocol, "the BMC redirects a %s to another host, %q: %w", method, origin(req.URL), errRedirected)
	case req.Method != method:
		return failf(bmc.KindProtocol, "the BMC redirects a %s as a %s: %w", method, req.Method, errRedirected)
	case len(via) > maxRedirects:
		return failf(bmc.KindProtocol, "the BMC redirects more than %d times", maxRedirects)
	}
	return nil
}

// checkURL refuses a URL outside the configured scheme, host and port. BMCs
// return links, action targets and redirects as text. Appended to our address,
// "@elsewhere/" is a URL on another host, which would receive our session
// token. // I10
func (t *transport) checkURL(u *url.URL) error {
	if t.endpoint.Serves(u) {
		return nil
	}
	return failf(bmc.KindProtocol, "the BMC refers to another host, %q: not followed", origin(u))
}

// origin is the part of u that is shown in an error: without user information.
func origin(u *url.URL) string { return bmc.Printable(u.Scheme+"://"+u.Host, maxIdentity) }

// path returns the path of a target that a BMC gave as text. Some give a whole
// URL; it must be on the BMC's own origin. // I10
func (t *transport) path(target string) (string, error) {
	if len(target) <= maxURI && strings.HasPrefix(target, "/") {
		return target, nil
	}
	u, err := url.Parse(target)
	if err != nil || len(target) > maxURI || !u.IsAbs() || u.Host == "" {
		return "", failf(bmc.KindProtocol, "%q is no path of the service", bmc.Printable(target, maxIdentity))
	}
	if err := t.checkURL(u); err != nil {
		return "", err
	}
	return u.RequestURI(), nil
}

type actionKey struct{}

// withAction marks the requests of ctx as a power command, also after a redirect.
func withAction(ctx context.Context) context.Context {
	return context.WithValue(ctx, actionKey{}, true)
}

func isAction(req *http.Request) bool { return req.Context().Value(actionKey{}) != nil }
