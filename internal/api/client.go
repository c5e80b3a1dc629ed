package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// DefaultSocket is where fenced listens unless configured otherwise.
const DefaultSocket = "/run/fenced/fenced.sock"

// maxAnswerBytes bounds an answer; the status of 100,000 nodes that all
// deviate stays under it.
const maxAnswerBytes = 64 << 20

// Client talks to one fenced.
type Client struct {
	at       string // where fenced is, for messages
	http     *http.Client
	question *http.Client  // asks whether fenced answers anything
	silence  time.Duration // silenceTime
	reply    time.Duration // replyTime
}

// New makes a client of the fenced behind a socket of this host; it connects with the first request.
func New(socket string) *Client {
	c := newClient(socket, func(ctx context.Context) (net.Conn, error) { return Dial(ctx, socket) }, false)
	c.question = c.http
	return c
}

// idleConnTime is how long a connection that costs a login waits for the next request. The server ends one
// only later (idleTimeout), so that no request meets that end.
const idleConnTime = idleTimeout / 2

// maxConns bounds the connections of one client that keeps them: a stream of events, what is asked meanwhile, and one more. Without it,
// a request would begin a login although another one is about to hand on its connection.
const maxConns = 3

// NewOver makes a client of a fenced that connect reaches, at a place that messages name. To connect is
// expensive, so connections are kept for later requests; End ends them. While a request waits, the client connects
// a second time to find out whether fenced answers anything: with quietly, which must ask no person for anything.
func NewOver(at string, connect, quietly func(context.Context) (net.Conn, error)) *Client {
	c := newClient(at, connect, true)
	c.question = newClient(at, quietly, false).http
	c.silence = remoteSilenceTime
	return c
}

func newClient(at string, connect func(context.Context) (net.Conn, error), keep bool) *Client {
	most := 0 // without a bound
	if keep {
		most = maxConns
	}
	return &Client{at: at, silence: silenceTime, reply: replyTime, http: &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives:   !keep, // one user has few connections, and may leave none behind
			IdleConnTimeout:     idleConnTime,
			MaxConnsPerHost:     most,
			MaxIdleConnsPerHost: most, // of itself net/http keeps two of them, and closes the third after its request
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := connect(ctx)
				if err != nil {
					return nil, err
				}
				return &refusableConn{Conn: conn, asked: make(chan struct{})}, nil
			},
			ResponseHeaderTimeout: writeTimeout + 5*time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// End ends the connections that wait for another request.
func (c *Client) End() { c.http.CloseIdleConnections() }

// Reply is an answer, decoded and as it came.
type Reply[T any] struct {
	Value T
	Body  []byte
}

// Status asks what fenced is and does.
func (c *Client) Status(ctx context.Context) (Reply[wire.Status], error) {
	return ask[wire.Status](ctx, c, http.MethodGet, "/v1/status", nil, nil)
}

// Explain asks why a node, or the Machine "namespace/name", is or is not fenced. An empty
// cluster means the only one.
func (c *Client) Explain(ctx context.Context, cluster, of string) (Reply[wire.Explanation], error) {
	return ask[wire.Explanation](ctx, c, http.MethodGet, targetPath(of, "explain"), inCluster(cluster), nil)
}

// NodeTimeline asks for the runs of a node or of the Machine "namespace/name", or for one run.
func (c *Client) NodeTimeline(ctx context.Context, cluster, of string) (Reply[wire.Timeline], error) {
	return ask[wire.Timeline](ctx, c, http.MethodGet, targetPath(of, "timeline"), inCluster(cluster), nil)
}

// Runs asks for all runs that started at since or later; the zero time means
// all that are kept.
func (c *Client) Runs(ctx context.Context, cluster string, since time.Time) (Reply[wire.Timeline], error) {
	q := inCluster(cluster)
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339))
	}
	return ask[wire.Timeline](ctx, c, http.MethodGet, "/v1/runs", q, nil)
}

// Run asks for one run: the timeline holds exactly it.
func (c *Client) Run(ctx context.Context, id string) (Reply[wire.Timeline], error) {
	r, err := ask[wire.Timeline](ctx, c, http.MethodGet, "/v1/runs/"+url.PathEscape(id), nil, nil)
	if err == nil && len(r.Value.Runs) != 1 {
		return r, fmt.Errorf("read run %s: fenced answered with %d runs", id, len(r.Value.Runs))
	}
	return r, err
}

// Do gives an order. Its Actor is ignored: the socket tells who we are.
func (c *Client) Do(ctx context.Context, o wire.Order) (Reply[wire.OrderResult], error) {
	return give[wire.OrderResult](ctx, c, o)
}

func give[T any](ctx context.Context, c *Client, o wire.Order) (Reply[T], error) {
	body, err := json.Marshal(o)
	if err != nil {
		return Reply[T]{}, fmt.Errorf("encode the order: %w", err)
	}
	return exchange[T](ctx, c, http.MethodPost, pathOf(o), inCluster(o.Cluster), body, !o.DryRun && !o.Verb.Row().Looks)
}

// targetPath is the path of what is read about one name. Only a Machine's has a slash.
func targetPath(of, verb string) string {
	if namespace, name, isMachine := strings.Cut(of, "/"); isMachine {
		return "/v1/machines/" + url.PathEscape(namespace) + "/" + url.PathEscape(name) + "/" + verb
	}
	return "/v1/nodes/" + url.PathEscape(of) + "/" + verb
}

// inCluster is the query about a cluster, if one is named, with more keys and values in turn.
func inCluster(cluster string, more ...string) url.Values {
	q := url.Values{}
	if cluster != "" {
		q.Set("cluster", cluster)
	}
	for pair := range slices.Chunk(more, 2) {
		q.Set(pair[0], pair[1])
	}
	return q
}

// ask is exchange for what is only read.
func ask[T any](ctx context.Context, c *Client, method, path string, q url.Values, body []byte) (Reply[T], error) {
	return exchange[T](ctx, c, method, path, q, body, false)
}

// exchange makes one request and decodes its answer. All errors of the daemon come
// back as *Error. changes: the request is an order that changes something.
func exchange[T any](ctx context.Context, c *Client, method, path string, q url.Values, body []byte, changes bool) (Reply[T], error) {
	var r Reply[T]
	resp, err := c.open(ctx, method, path, q, body, changes)
	if err != nil {
		return r, err
	}
	r.Body, err = readAnswer(resp)
	if err != nil {
		return r, fmt.Errorf("read the answer of fenced: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return r, decodeError(resp.StatusCode, r.Body)
	}
	if err := json.Unmarshal(r.Body, &r.Value); err != nil {
		return r, fmt.Errorf("read the answer of fenced at %s: %w", c.at, err)
	}
	return r, nil
}

// open sends a request and gives the answer before its body is read. The body ends, too, when fenced falls silent.
func (c *Client) open(ctx context.Context, method, path string, q url.Values, content []byte, changes bool) (*http.Response, error) {
	u := "http://fenced" + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	asking, cancel := context.WithCancelCause(ctx)
	connected := make(chan struct{}) // a login over ssh may wait for a person: that is no silence of fenced
	onConn := sync.OnceFunc(func() { close(connected) })
	asking = httptrace.WithClientTrace(asking, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { onConn() }})
	req, err := http.NewRequestWithContext(asking, method, u, bytes.NewReader(content))
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("ask fenced: %w", err)
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	b := &body{cancel: cancel, lost: func(err error) error { return c.lost(ctx, changes, context.Cause(asking), connected, err) }}
	b.whole = sync.OnceFunc(c.watchSilence(asking, connected, &b.reads, cancel))
	resp, err := c.http.Do(req)
	if err != nil {
		err = b.lost(err)
		b.end()
		return nil, err
	}
	b.ReadCloser, resp.Body = resp.Body, b
	return resp, nil
}

// lost is the error of a request without an answer, or whose answer is not whole. silent says whether fenced answers nothing any more.
func (c *Client) lost(ctx context.Context, changes bool, silent error, connected <-chan struct{}, err error) error {
	var cause *url.Error
	if errors.As(err, &cause) {
		err = cause.Err // its text names a URL that nobody typed
	}
	perhaps := func(err error) error {
		select {
		case <-connected:
			if changes {
				return fmt.Errorf("%w; %w", err, ErrPerhapsSent)
			}
		default: // nothing was sent
		}
		return err
	}
	switch {
	case ctx.Err() != nil: // fenced completes an order that it has read
		return perhaps(fmt.Errorf("ask fenced at %s: %w", c.at, ctx.Err()))
	case errors.Is(silent, ErrSilent):
		if changes {
			return fmt.Errorf("at %s: %w; the order was sent, and fenced may carry it out when it goes on", c.at, silent)
		}
		return fmt.Errorf("at %s: %w", c.at, silent)
	case errors.Is(err, fs.ErrPermission):
		return &Error{Status: http.StatusForbidden, Code: CodeNotAuthorised,
			Message: fmt.Sprintf("connect to %s: permission denied", c.at),
			Hint:    "the socket admits root and the members of its group; usermod -aG fenced-view USER, then log in anew"}
	}
	return perhaps(fmt.Errorf("%w at %s: %w", ErrUnreachable, c.at, err))
}

// ErrPerhapsSent is in the chain of an error of an order whose connection broke, or was given up, before the answer.
var ErrPerhapsSent = errors.New("the order may have been sent, and fenced may carry it out")

// openStream asks for an answer that is read as it comes. An answer other than 200 is an error.
func (c *Client) openStream(ctx context.Context, path string, q url.Values) (*http.Response, error) {
	resp, err := c.open(ctx, http.MethodGet, path, q, nil, false)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	text, err := readAnswer(resp)
	if err != nil {
		return nil, fmt.Errorf("read the answer of fenced: %w", err)
	}
	return nil, decodeError(resp.StatusCode, text)
}

func readAnswer(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err == nil && len(body) > maxAnswerBytes {
		err = fmt.Errorf("it is larger than %d bytes", maxAnswerBytes)
	}
	return body, err
}

func decodeError(status int, body []byte) error {
	e := &Error{Status: status, Body: body}
	if err := json.Unmarshal(body, e); err != nil || e.Code == "" {
		return &Error{Status: status, Code: CodeInternal,
			Message: fmt.Sprintf("fenced answered with HTTP status %d and no reason", status)}
	}
	return e
}

const (
	dialTime = 5 * time.Second
	// dialAgain is how soon a full queue of connections is tried again.
	dialAgain = time.Millisecond
)

// Dial connects to the daemon behind a socket of this host. While more want to connect than it has let in, it tries again, for 5 s.
func Dial(ctx context.Context, socket string) (net.Conn, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(dialing, "unix", socket)
		if err == nil || !errors.Is(err, syscall.EAGAIN) || dialing.Err() != nil {
			return c, err
		}
		select {
		case <-dialing.Done():
		case <-time.After(dialAgain):
		}
	}
}

// refusableConn is a connection that the daemon may refuse before it has read the request: what it
// answered is read all the same, once the request was sent, although that failed.
type refusableConn struct {
	net.Conn
	once  sync.Once
	asked chan struct{} // closed after the first write, or when it is closed
}

func (c *refusableConn) Read(b []byte) (int, error) {
	<-c.asked
	return c.Conn.Read(b)
}

func (c *refusableConn) Write(b []byte) (int, error) {
	defer c.once.Do(func() { close(c.asked) })
	n, err := c.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		return len(b), nil // why, is for Read to say
	}
	return n, err
}

// Close ends the connection.
func (c *refusableConn) Close() error {
	c.once.Do(func() { close(c.asked) })
	return c.Conn.Close()
}

// An order may take minutes. So a request waits for silenceTime before the client asks whether
// fenced answers anything at all, and that question waits for replyTime: a fenced that is stopped
// or hangs answers neither.
const (
	silenceTime = 5 * time.Second
	replyTime   = 5 * time.Second
	// remoteSilenceTime: over ssh the question is another login.
	remoteSilenceTime = 15 * time.Second
)

// ErrSilent is in the chain of an error that means: fenced accepts connections and answers
// nothing. It is beside ErrUnreachable.
var ErrSilent = errors.New("it accepts connections and answers nothing")

// watchSilence cancels a request with ErrSilent when fenced answers nothing any more, once it is connected, and nothing of the answer
// is read. The caller calls stop when the answer is whole.
func (c *Client) watchSilence(ctx context.Context, connected <-chan struct{}, reads *atomic.Int64, cancel context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-connected:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
		for {
			before := reads.Load()
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-time.After(c.silence):
			}
			if reads.Load() == before && !c.answers(ctx) && reads.Load() == before {
				cancel(fmt.Errorf("%w: %w since %s", ErrUnreachable, ErrSilent, c.silence+c.reply))
				return
			}
		}
	}()
	return func() { close(done) }
}

// answers asks fenced for a route that does not exist: any answer shows that it is alive, and so
// does a connection that it closes. No connection at all shows nothing.
func (c *Client) answers(ctx context.Context) bool {
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	var late atomic.Bool
	asked = httptrace.WithClientTrace(asked, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		time.AfterFunc(c.reply, func() { late.Store(true); cancel() })
	}})
	req, err := http.NewRequestWithContext(asked, http.MethodGet, "http://fenced/", http.NoBody)
	if err != nil {
		return true // the request is at fault, not fenced
	}
	resp, err := c.question.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err == nil || !late.Load() || ctx.Err() != nil
}

// body is an answer that ends its request when it is closed. One that ends before it is whole is lost.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
	whole  func() // ends the watch over fenced
	lost   func(error) error
	reads  atomic.Int64
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.reads.Add(1)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.lost(err)
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

func (b *body) end() {
	b.whole()
	b.cancel(nil)
}
