package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fenced/fenced/internal/bmc"
)

// The largest answers that are read. A page of 500 Nodes has less than 10 MB, and
// an object of 1.5 MiB, etcd's limit, has 9 MiB in JSON if each of its characters
// has to be escaped.
const (
	MaxBody   = 64 << 20 // of a list
	MaxObject = 12 << 20 // of anything else, and of one value of a watch
)

var ErrBodyTooLarge = errors.New("the API server's answer is too large")

// limitedTransport is the transport under every client. It limits what is read
// and compares the server's clock with ours.
type limitedTransport struct {
	next  http.RoundTripper
	clock *offset
}

func (g limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	revoke := func() {}
	if r.Method != http.MethodGet {
		if err := bmc.Over(r.Context(), time.Now()); err != nil { // the process may have been frozen since it was decided // I1, I19, I22
			if r.Body != nil {
				_ = r.Body.Close() // as each RoundTripper must
			}
			return nil, err
		}
		if r.Context().Value(revocableKey{}) != nil {
			r, revoke = revocable(r)
		}
	}
	sent := time.Now()
	resp, err := g.next.RoundTrip(r)
	if err != nil {
		revoke()
		return nil, err
	}
	g.clock.measure(resp, sent, time.Now())
	if clock, ok := r.Context().Value(clockKey{}).(*serverClock); ok {
		clock.read(resp.Header.Get("Date"))
	}
	preventRetry(r, resp)
	switch asks := r.URL.Query(); {
	case asks.Get("watch") != "" && resp.StatusCode == http.StatusOK:
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) { // client-go limits its frames
			resp.Body = &boundedFrames{ReadCloser: resp.Body}
		}
	case asks.Get("limit") != "" || r.Context().Value(listKey{}) != nil:
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: MaxBody}
	default:
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: MaxObject}
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (g limitedTransport) WrappedRoundTripper() http.RoundTripper { return g.next }

// boundedBody returns an error, not the end of the body, if there is too much: a
// cut list must not look complete.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrBodyTooLarge
	}
	return n, err
}

type listKey struct{}

// AsList marks the requests for lists without a limit, which client-go makes
// when the continuation of a limited list has expired.
func AsList(ctx context.Context) context.Context { return context.WithValue(ctx, listKey{}, true) }

type clockKey struct{}

// serverClock is the Date of one answer, in whole seconds.
type serverClock struct{ date time.Time }

// WithClock returns a context that records the time in the answer to its request.
func WithClock(ctx context.Context) (context.Context, *serverClock) {
	clock := &serverClock{}
	return context.WithValue(ctx, clockKey{}, clock), clock
}

func (c *serverClock) read(header string) {
	if t, err := http.ParseTime(header); err == nil {
		c.date = t
	}
}

// Now is the server's time, at most one second early; fallback if there was no
// answer.
func (c *serverClock) Now(fallback time.Time) time.Time {
	if c.date.IsZero() {
		return fallback
	}
	return c.date
}

// offset is the difference between an API server's clock and this host's, from
// the last answer with a time. // I16
type offset struct {
	mu   sync.Mutex
	skew time.Duration // the API server's clock minus this host's
	at   time.Time     // time of that answer; zero = none yet
}

// measure uses an answer to a request that was sent at sent. An answer with
// status 500 or above may come from a proxy, which has another clock.
func (o *offset) measure(resp *http.Response, sent, answered time.Time) {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.skew, o.at = skewOf(date, sent, answered), answered
}

// current returns the offset now; known is false until an answer had a time. A
// change of this host's clock since the last answer is included at once, measured
// by the monotonic clock.
func (o *offset) current(now time.Time) (skew time.Duration, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at.IsZero() {
		return 0, false
	}
	set := now.Round(0).Sub(o.at.Round(0)) - now.Sub(o.at)
	return o.skew - set, true
}

// skewOf returns by how much a server's clock is certainly ahead of ours
// (negative: behind), from the Date of its answer. A difference that the whole
// seconds of Date and the duration of the request can explain counts as zero.
func skewOf(date, sent, answered time.Time) time.Duration {
	switch {
	case date.After(answered):
		return date.Sub(answered)
	case date.Add(time.Second).Before(sent):
		return date.Add(time.Second).Sub(sent)
	}
	return 0
}

// writeTimeout is for one write of a run. An API server ends a write after 34 s.
// Up to 30 s of these it may wait for a webhook with failurePolicy Ignore, whose
// backend may have run on the very Node that is written.
const writeTimeout = 35 * time.Second

// WithReadTimeout is for one read of a run's action.
func WithReadTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, RequestTimeout)
}

// WithWriteTimeout is for one write of a run.
func WithWriteTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, writeTimeout)
}

// unacknowledged is for how long the kernel repeats what the other side has not acknowledged; then it ends the connection. It is shorter
// than a takeover by another instance.
const unacknowledged = 5 * time.Second

var dialer = net.Dialer{
	Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, // those of client-go
	Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged/time.Millisecond))
		}), err)
	},
}

// dial makes a connection on which nothing arrives late. A partition keeps what was sent right before it in the kernel, which by default sends it
// when the partition heals, minutes later: the API server would delete a Node whose host runs again. So the kernel gives up soon, and forgets all of
// it when the connection is closed, also by the end of this process. // I1, I19
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		_ = conn.Close() // the first error is the one to tell
		return nil, err
	}
	return conn, nil
}

type revocableKey struct{}

// Revocable marks writes that must not arrive late. The connection of one that has no answer is closed before its error is returned: over HTTP/2
// the end of a context only asks the server to stop, behind the request itself. Over HTTP/2 that also ends what others do on the connection: reads
// are repeated, and a write whose answer is lost may have been done, as ever. // I1
func Revocable(ctx context.Context) context.Context {
	return context.WithValue(ctx, revocableKey{}, true)
}

// revocable returns the request, and what closes each connection on which it was sent.
func revocable(r *http.Request) (traced *http.Request, revoke func()) {
	var mu sync.Mutex
	var used []net.Conn
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		mu.Lock()
		defer mu.Unlock()
		used = append(used, i.Conn)
	}}
	return r.WithContext(httptrace.WithClientTrace(r.Context(), trace)), func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range used {
			for encrypted, ok := conn.(*tls.Conn); ok; encrypted, ok = conn.(*tls.Conn) {
				conn = encrypted.NetConn() // TLS would first try to say goodbye
			}
			_ = conn.Close() // an error means that it is closed already
		}
	}
}

type withoutRetryKey struct{}

// WithoutRetry marks requests that are sent only once. client-go repeats a
// request after the wait that a busy API server's answer names; by then the
// decision for the write is too old and must be made again. // I1, I4
func WithoutRetry(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutRetryKey{}, true)
}

// preventRetry removes the wait from such an answer; without it client-go does
// not repeat.
func preventRetry(r *http.Request, resp *http.Response) {
	if r.Context().Value(withoutRetryKey{}) != nil {
		resp.Header.Del("Retry-After")
	}
}

// boundedFrames limits each JSON value of a watch. client-go reads one whole before it decodes it,
// however long it is. A value ends where its outermost bracket closes; whatever comes between two
// values counts for the second.
type boundedFrames struct {
	io.ReadCloser
	size              int64 // bytes since the last value ended
	depth             int   // brackets that are open
	inString, escaped bool
}

func (b *boundedFrames) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		if b.size++; b.size > MaxObject {
			return 0, ErrBodyTooLarge
		}
		b.follow(c)
	}
	return n, err
}

func (b *boundedFrames) follow(c byte) {
	switch {
	case b.escaped:
		b.escaped = false
	case b.inString:
		b.escaped, b.inString = c == '\\', c != '"'
	case c == '"':
		b.inString = true
	case c == '{', c == '[':
		b.depth++
	case c == '}', c == ']':
		if b.depth--; b.depth <= 0 { // below zero it is no JSON, and the decoder ends the watch
			b.depth, b.size = 0, 0
		}
	}
}
