package k8swatch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// The largest answers that are read. A page of 500 Nodes has less than 10 MB, and
// an object of 1.5 MiB, etcd's limit, has 9 MiB in JSON if each of its characters
// has to be escaped.
const (
	maxBody   = 64 << 20 // of a list
	maxObject = 12 << 20 // of anything else, and of one value of a watch
)

var errBodyTooLarge = errors.New("the API server's answer is too large")

// limitedTransport is the transport under every client. It limits what is read
// and compares the server's clock with ours.
type limitedTransport struct {
	next  http.RoundTripper
	clock *offset
}

func (g limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	resp, err := g.next.RoundTrip(r)
	if err != nil {
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
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxBody}
	default:
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxObject}
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
		return 0, errBodyTooLarge
	}
	return n, err
}

// listKey marks the requests for lists without a limit, which client-go makes
// when the continuation of a limited list has expired.
type listKey struct{}

type clockKey struct{}

// serverClock is the Date of one answer, in whole seconds.
type serverClock struct{ date time.Time }

// withClock returns a context that records the time in the answer to its request.
func withClock(ctx context.Context) (context.Context, *serverClock) {
	clock := &serverClock{}
	return context.WithValue(ctx, clockKey{}, clock), clock
}

func (c *serverClock) read(header string) {
	if t, err := http.ParseTime(header); err == nil {
		c.date = t
	}
}

// now is the server's time, at most one second early; fallback if there was no
// answer.
func (c *serverClock) now(fallback time.Time) time.Time {
	if c.date.IsZero() {
		return fallback
	}
	return c.date
}
