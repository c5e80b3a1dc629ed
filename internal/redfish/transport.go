package redfish

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
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
	strange := false
	var hello handshake
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	traced := req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { // called before anything is written, in the goroutine of RoundTrip
			fresh.Store(!got.Reused)
			conn = got.Conn
			if strange = !t.mayCarry(req, conn); strange {
				_ = conn.Close() // req cannot be written to it then
			}
		},
		TLSHandshakeDone: hello.done,
	}))
	resp, err := t.base.RoundTrip(traced)
	if strange {
		err = errOtherConnection
	}
	if err != nil {
		used := conn != nil && !fresh.Load()
		if strange || used && endedByPeer(err) {
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
