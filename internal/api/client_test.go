package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEmptyListsAreNotNull(t *testing.T) {
	path := serve(t, &fake{status: wire.Status{Clusters: []wire.ClusterStatus{{Name: "prod"}}}}, Roles{})
	c := New(path)
	st, err := c.Status(t.Context())
	require.NoError(t, err)
	assert.JSONEq(t, `{"apiVersion":"v1","version":"","armed":false,"paused":false,"pausedReason":"","runs":[],"blocked":[],"bmcs":{"total":0,"notDependable":0,"notChecked":0},
		"clusters":[{"name":"prod","mode":"","armed":false,"owner":false,"epoch":0,"viewAgeSeconds":0,"nodes":0,"checks":[],"deviating":[]}]}`, string(st.Body))
	tl, err := c.NodeTimeline(t.Context(), "", "n-1")
	require.NoError(t, err)
	assert.Equal(t, `{"apiVersion":"v1","runs":[]}`+"\n", string(tl.Body))
	names, err := c.Names(t.Context(), "prod", "n-")
	require.NoError(t, err)
	assert.JSONEq(t, `{"apiVersion":"v1","clusters":["prod"],"nodes":["n-1"],"machines":[],"checks":[],"runs":[],"openRuns":[]}`, string(names.Body))
	ex, err := c.Explain(t.Context(), "prod", "n-1")
	require.NoError(t, err)
	assert.Equal(t, "prod", ex.Value.Cluster)
	assert.Contains(t, string(ex.Body), `"gates":[]`)
}

func TestFiltersReachTheDaemon(t *testing.T) {
	d := &fake{runs: wire.Timeline{Runs: []wire.RunRecord{{ID: "r-1"}}}}
	c := New(serve(t, d, Roles{}))
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := c.Runs(t.Context(), "prod", since)
	require.NoError(t, err)
	assert.Equal(t, wire.RunFilter{Cluster: "prod", Since: since}, d.filter)
	_, err = c.NodeTimeline(t.Context(), "prod", "n-1.example")
	require.NoError(t, err)
	assert.Equal(t, wire.RunFilter{Cluster: "prod", Node: "n-1.example"}, d.filter)
	_, err = c.Run(t.Context(), "r-1")
	require.NoError(t, err)
	assert.Equal(t, wire.RunFilter{ID: "r-1"}, d.filter)
}

func TestErrorsArriveTyped(t *testing.T) {
	c := New(serve(t, &fake{err: Refused("NoHost", "n-1 has no BMC", "add it to hosts.d")}, Roles{}))
	_, err := c.Do(t.Context(), wire.Order{Verb: wire.Fence, Node: "n-1", Reason: "test"})
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, Error{Status: http.StatusUnprocessableEntity, Code: "NoHost", Message: "n-1 has no BMC", Hint: "add it to hosts.d",
		Body: []byte(`{"apiVersion":"v1","code":"NoHost","message":"n-1 has no BMC","hint":"add it to hosts.d"}` + "\n")}, *e)
}

func TestEventsArriveAsTheyHappen(t *testing.T) {
	d := &fake{events: []wire.Event{{Seq: 1, Type: "RunStarted"}, {Seq: 2, Type: "StepEntered", Step: "PowerOff"}, {Seq: 3, Type: "RunEnded"}}}
	c := New(serve(t, d, Roles{}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []uint64
	for e, err := range c.Events(ctx, 1) { // the stream is still open when we leave
		require.NoError(t, err)
		if got = append(got, e.Seq); len(got) == 2 {
			break
		}
	}
	assert.Equal(t, []uint64{2, 3}, got)
}

// The events that are kept can be read without waiting for the next one.
func TestKeptEventsEnd(t *testing.T) {
	c := New(serve(t, &fake{events: []wire.Event{{Seq: 1}, {Seq: 2}}}, Roles{}))
	var got []uint64
	for e, err := range c.KeptEvents(t.Context()) {
		require.NoError(t, err)
		got = append(got, e.Seq)
	}
	assert.Equal(t, []uint64{1, 2}, got)
	for _, err := range New(filepath.Join(t.TempDir(), "none")).KeptEvents(t.Context()) {
		require.ErrorIs(t, err, ErrUnreachable)
	}
}

func TestEventStreamEndsWithTheServer(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	ln, err := Listen(path)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() {
		served <- NewServer(&fake{events: []wire.Event{{Seq: 1}}}, Roles{}, log.New(t.Output(), "", 0)).Serve(ctx, ln)
	}()
	var last error
	for _, err := range New(path).Events(t.Context(), 0) {
		if last = err; err == nil {
			stop() // with the stream open
		}
	}
	require.ErrorIs(t, last, ErrUnreachable)
	require.NoError(t, <-served)
	assert.NoFileExists(t, path)
}

func TestNobodyListens(t *testing.T) {
	_, err := New(filepath.Join(shortDir(t), "s")).Status(t.Context())
	require.ErrorIs(t, err, ErrUnreachable)
	assert.NotContains(t, err.Error(), "http://")
	for _, err := range New(filepath.Join(shortDir(t), "s")).Events(t.Context(), 0) {
		require.ErrorIs(t, err, ErrUnreachable)
	}
}

// A daemon of another version, or something else on the socket, must give an
// error and never a crash or a zero value taken for truth.
func TestForeignAnswers(t *testing.T) {
	for _, tc := range []struct{ name, reply, want string }{
		{"not HTTP", "hello\n", "not reachable"},
		{"not JSON", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "read the answer"},
		{"error without a body", "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "HTTP status 500"},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "HTTP status 302"},
		{"two runs for one", "HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"runs\":[{},{}]}  ", "2 runs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(shortDir(t), "s")
			ln, err := Listen(path)
			require.NoError(t, err)
			defer ln.Close()
			go func() {
				if c, err := ln.Accept(); err == nil {
					_, _ = c.Read(make([]byte, 4096)) // whatever was asked
					_, _ = c.Write([]byte(tc.reply))  // the client's error is what is tested
					_ = c.(*net.UnixConn).CloseWrite()
				}
			}()
			_, err = New(path).Run(t.Context(), "r-1")
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestOrderBodyHidesRoute(t *testing.T) {
	body, err := json.Marshal(wire.Order{Verb: wire.Fence, Cluster: "c", Node: "n", Actor: "a", Reason: "r"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"reason":"r"}`, string(body))
	assert.True(t, strings.HasPrefix(pathOf(wire.Order{Verb: wire.Fence, Node: "a/b"}), "/v1/nodes/a%2Fb/"))
}

// A fenced that accepts connections and answers nothing, because it is stopped or hangs, is told
// long before an order would have had to be answered.
func TestSilentDaemonIsTold(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	ln, err := net.Listen("unix", socket) // nobody accepts, as when the process is stopped
	require.NoError(t, err)
	defer ln.Close()
	c := New(socket)
	c.silence, c.reply = 20*time.Millisecond, 20*time.Millisecond
	_, err = c.Status(t.Context())
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorIs(t, err, ErrSilent)
	assert.NotContains(t, err.Error(), "order")
	_, err = c.Do(t.Context(), wire.Order{Verb: wire.Pause, Reason: "storm"})
	require.ErrorIs(t, err, ErrSilent)
	assert.Contains(t, err.Error(), "the order was sent, and fenced may carry it out")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Status(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrSilent)
}

// An order that takes long is waited for as long as fenced answers anything.
func TestSlowAnswerIsNoSilence(t *testing.T) {
	d := &fake{block: &block{began: make(chan struct{}), until: make(chan struct{}), ended: make(chan struct{})}}
	c := New(serve(t, d, Roles{}))
	c.silence, c.reply = 20*time.Millisecond, time.Minute
	answered := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), wire.Order{Verb: wire.Pause, Reason: "storm"})
		answered <- err
	}()
	<-d.block.began
	time.Sleep(6 * c.silence) // several questions
	close(d.block.until)
	require.NoError(t, <-answered)
}

func TestExportIsWholeOrAnError(t *testing.T) {
	whole := `{"format":"x"}` + "\n" + strings.Repeat("r", 1<<20) + "\n" + `{"records":1,"sha256":"00"}` + "\n"
	get := func(d *fake) (string, error) {
		var out bytes.Buffer
		err := New(serve(t, d, Roles{})).Export(t.Context(), &out)
		return out.String(), err
	}
	got, err := get(&fake{export: whole})
	require.NoError(t, err)
	require.Equal(t, whole, got)

	for _, cut := range []int{1, len(whole) / 2, strings.LastIndex(whole, `{"rec`)} {
		_, err = get(&fake{export: whole[:cut], err: errors.New("the store is gone")})
		require.ErrorContains(t, err, "not whole")
	}
	_, err = get(&fake{err: errors.New("the store is gone")})
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, http.StatusInternalServerError, e.Status)
	require.Equal(t, "the store is gone", e.Message)
}
