package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

func TestEmptyListsAreNotNull(t *testing.T) {
	path := serve(t, &fake{status: wire.Status{Clusters: []wire.ClusterStatus{{Name: "prod"}}}}, Roles{})
	c := New(path)
	st := must.Do(c.Status(t.Context()))(t)
	assert.JSONEq(t, `{"apiVersion":"v1","version":"","armed":false,"paused":false,"pausedReason":"","runs":[],"blocked":[],"bmcs":{"total":0,"notDependable":0,"notChecked":0},
		"clusters":[{"name":"prod","mode":"","armed":false,"owner":false,"epoch":0,"viewAgeSeconds":0,"nodes":0,"checks":[],"deviating":[]}]}`, string(st.Body))
	tl := must.Do(c.NodeTimeline(t.Context(), "", "n-1"))(t)
	assert.Equal(t, `{"apiVersion":"v1","runs":[]}`+"\n", string(tl.Body))
	names := must.Do(c.Names(t.Context(), "prod", "n-"))(t)
	assert.JSONEq(t, `{"apiVersion":"v1","clusters":["prod"],"nodes":["n-1"],"machines":[],"checks":[],"runs":[],"openRuns":[]}`, string(names.Body))
	ex := must.Do(c.Explain(t.Context(), "prod", "n-1"))(t)
	assert.Equal(t, "prod", ex.Value.Cluster)
	assert.Contains(t, string(ex.Body), `"gates":[]`)
}

func TestFiltersReachTheDaemon(t *testing.T) {
	d := &fake{runs: wire.Timeline{Runs: []wire.RunRecord{{ID: "r-1"}}}}
	c := New(serve(t, d, Roles{}))
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	must.Do(c.Runs(t.Context(), "prod", since))(t)
	assert.Equal(t, wire.RunFilter{Cluster: "prod", Since: since}, d.filter)
	must.Do(c.NodeTimeline(t.Context(), "prod", "n-1.example"))(t)
	assert.Equal(t, wire.RunFilter{Cluster: "prod", Node: "n-1.example"}, d.filter)
	must.Do(c.Run(t.Context(), "r-1"))(t)
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
	for e, err := range c.EventsAfter(t.Context(), "", 0, false) {
		require.NoError(t, err)
		got = append(got, e.Seq)
	}
	assert.Equal(t, []uint64{1, 2}, got)
	for _, err := range New(filepath.Join(t.TempDir(), "none")).EventsAfter(t.Context(), "", 0, false) {
		require.ErrorIs(t, err, ErrUnreachable)
	}
}

func TestEventStreamEndsWithTheServer(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	ln := must.Do(Listen(path))(t)
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
			ln := must.Do(Listen(path))(t)
			defer ln.Close()
			go func() {
				if c, err := ln.Accept(); err == nil {
					_, _ = c.Read(make([]byte, 4096)) // whatever was asked
					_, _ = c.Write([]byte(tc.reply))  // the client's error is what is tested
					_ = c.(*net.UnixConn).CloseWrite()
				}
			}()
			_, err := New(path).Run(t.Context(), "r-1")
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestOrderBodyHidesRoute(t *testing.T) {
	body := must.Do(json.Marshal(wire.Order{Verb: wire.Fence, Cluster: "c", Node: "n", Actor: "a", Reason: "r"}))(t)
	assert.JSONEq(t, `{"reason":"r"}`, string(body))
	assert.True(t, strings.HasPrefix(pathOf(wire.Order{Verb: wire.Fence, Node: "a/b"}), "/v1/nodes/a%2Fb/"))
}

// A fenced that accepts connections and answers nothing, because it is stopped or hangs, is told
// long before an order would have had to be answered.
func TestSilentDaemonIsTold(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	ln := must.Do(net.Listen("unix", socket))(t) // nobody accepts, as when the process is stopped
	defer ln.Close()
	c := New(socket)
	c.silence, c.reply = 20*time.Millisecond, 20*time.Millisecond
	_, err := c.Status(t.Context())
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

// TestDaemonThatFallsSilentInItsAnswerIsTold: it was stopped in the middle, and nobody waits for it for ever.
func TestDaemonThatFallsSilentInItsAnswerIsTold(t *testing.T) {
	fallsSilent(t, func(ctx context.Context, c *Client) error { return c.Export(ctx, io.Discard) })
	err := fallsSilent(t, func(ctx context.Context, c *Client) error {
		_, err := c.Do(ctx, wire.Order{Verb: wire.Pause, Reason: "storm"})
		return err
	})
	assert.Contains(t, err.Error(), "the order was sent, and fenced may carry it out")
}

func fallsSilent(t *testing.T, ask func(context.Context, *Client) error) error {
	socket := filepath.Join(shortDir(t), "s")
	ln := must.Do(net.Listen("unix", socket))(t)
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"run\":"))
		<-t.Context().Done()
	}()
	c := New(socket)
	c.silence, c.reply = 20*time.Millisecond, 20*time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := ask(ctx, c)
	require.ErrorIs(t, err, ErrSilent)
	require.ErrorIs(t, err, ErrUnreachable)
	return err
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

// fake is a daemon that answers what it is told to and keeps the orders.
type fake struct {
	only   string // cluster
	Daemon        // what is not answered below

	status  wire.Status
	explain wire.Explanation
	plan    wire.Plan
	covers  wire.Coverage
	runs    wire.Timeline
	bmcs    wire.BMCs
	events  []wire.Event
	audit   []wire.AuditLine
	hangs   bool // after these lines
	result  wire.OrderResult
	export  string
	means   map[wire.Named]wire.Named // what names mean that do not mean themselves
	err     error

	filter wire.RunFilter
	query  audit.Query
	orders []wire.Order
	denied []wire.Order
	codes  []string // why those were refused
	block  *block   // of Do
}

// block makes one Do wait, and tells when it began and ended.
type block struct{ began, until, ended chan struct{} }

func (f *fake) Status(context.Context) (wire.Status, error) { return f.status, f.err }

func (f *fake) Explain(_ context.Context, cluster, node string) (wire.Explanation, error) {
	e := f.explain
	e.Cluster, e.Node = cluster, node
	return e, f.err
}

func (f *fake) Plan(context.Context, string) (wire.Plan, error) { return f.plan, f.err }

func (f *fake) Resolve(_ wire.Wanted, n wire.Named) (wire.Named, error) {
	if means, ok := f.means[n]; ok {
		return means, f.err
	}
	return n, nil
}

func (f *fake) OnlyCluster() string { return f.only }

func (f *fake) Names(_ context.Context, cluster, prefix string) (wire.Names, error) {
	return wire.Names{Clusters: []string{cluster}, Nodes: []string{prefix + "1"}}, f.err
}

func (f *fake) Coverage(context.Context, string) (wire.Coverage, error) { return f.covers, f.err }

func (f *fake) BMCs(_ context.Context, of wire.BMCFilter) (wire.BMCs, error) {
	f.filter.Cluster = of.Cluster
	all := wire.BMCs{}
	for _, b := range f.bmcs.BMCs {
		if of.Wants(&b) {
			all.BMCs = append(all.BMCs, b)
		}
	}
	return all, f.err
}

func (f *fake) LookAtBMCs(_ context.Context, o wire.Order) (wire.BMCs, error) {
	f.orders = append(f.orders, o)
	return f.bmcs, f.err
}

func (f *fake) Runs(_ context.Context, filter wire.RunFilter) (wire.Timeline, error) {
	f.filter = filter
	return f.runs, f.err
}

func (f *fake) Do(ctx context.Context, o wire.Order) (wire.OrderResult, error) {
	if f.block != nil {
		close(f.block.began)
		<-f.block.until
		defer close(f.block.ended)
	}
	if ctx.Err() != nil {
		return wire.OrderResult{}, ctx.Err()
	}
	f.orders = append(f.orders, o)
	return f.result, f.err
}

func (f *fake) Refused(o wire.Order, e *Error) {
	f.denied, f.codes = append(f.denied, o), append(f.codes, e.Code)
}

func (f *fake) Export(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, f.export)
	return errors.Join(err, f.err)
}

func (f *fake) Stream() string { return "one" }

func (f *fake) Events(ctx context.Context, after uint64) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for _, e := range f.events {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

func (f *fake) Report(_ context.Context, cluster string, since, until time.Time) (wire.PeriodReport, error) {
	return wire.PeriodReport{Cluster: cluster, Since: since, Until: until}, f.err
}

func (f *fake) Audit(ctx context.Context, q audit.Query, entry func(audit.Entry) error, broken func(audit.Break) error) error {
	f.query = q
	for _, l := range f.audit {
		var err error
		if l.Break != nil {
			err = broken(*l.Break)
		} else {
			err = entry(*l.Entry)
		}
		if err != nil {
			return err
		}
	}
	if f.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.err
}

// serve runs a server on a socket and gives the socket's path.
func serve(t *testing.T, d Daemon, roles Roles) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	ln := must.Do(Listen(path))(t)
	serveOn(t, ln, d, roles)
	return path
}

func serveOn(t *testing.T, ln net.Listener, d Daemon, roles Roles, twoPersons ...wire.Verb) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(d, roles, log.New(t.Output(), "", 0), twoPersons...).Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Error("the server did not stop")
		}
	})
}

// shortDir is a directory whose path fits a socket address.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := must.Do(os.MkdirTemp("", "fenced"))(t)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func TestBMCsOnTheWire(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := &fake{bmcs: wire.BMCs{BMCs: []wire.BMC{
		{Cluster: "prod", Node: "n-1", Host: "prod/n-1", Source: "hosts.d/a.yaml:3", Level: 1, Device: "ipmi://192.0.2.1:623", Driver: "ipmi",
			Assurance: "strict", State: "ok", Dependable: true, Power: "On", PowerRaw: "01", Identity: "match", UUID: "4c4c", Serial: "S1",
			LatencySeconds: 0.25, LatencyP95Seconds: 0.5, Checked: at, LastGood: at, Next: at, Manufacturer: "Dell", Model: "R650", Firmware: "7.0",
			MACs: []string{"00:25:90:00:00:02"}, RestorePolicy: "previous", CertificateUntil: at, PowerEvents: []wire.PowerEvent{{At: at, Text: "power off"}},
			Findings: []wire.BMCFinding{{Code: "RestorePolicy", Message: "it starts by itself"}}, Audited: at, Refused: []wire.BMCFinding{{Code: "Frozen", Message: "it lied"}}},
		{Cluster: "prod", Node: "n-2", State: "failed", Reason: "InvalidHost", Problem: "no such scheme", Power: "Unknown", AuditProblem: "no session"},
	}}}
	c := New(serve(t, d, Roles{}))
	rep := must.Do(c.BMCs(t.Context(), "prod"))(t)
	assert.Equal(t, "prod", d.filter.Cluster)
	assert.JSONEq(t, `{"apiVersion":"v1","bmcs":[
	  {"cluster":"prod","node":"n-1","host":"prod/n-1","source":"hosts.d/a.yaml:3","level":1,"device":"ipmi://192.0.2.1:623","driver":"ipmi",
	   "assurance":"strict","state":"ok","dependable":true,"power":"On","powerRaw":"01","identity":"match","uuid":"4c4c","serial":"S1",
	   "latencySeconds":0.25,"latencyP95Seconds":0.5,"checked":"2026-01-01T00:00:00Z","lastGood":"2026-01-01T00:00:00Z","next":"2026-01-01T00:00:00Z",
	   "failures":0,"manufacturer":"Dell","model":"R650","firmware":"7.0","macs":["00:25:90:00:00:02"],"restorePolicy":"previous",
	   "certificateUntil":"2026-01-01T00:00:00Z","powerEvents":[{"at":"2026-01-01T00:00:00Z","text":"power off"}],
	   "findings":[{"code":"RestorePolicy","message":"it starts by itself"}],"audited":"2026-01-01T00:00:00Z",
	   "refused":[{"code":"Frozen","message":"it lied"}]},
	  {"cluster":"prod","node":"n-2","level":0,"state":"failed","dependable":false,"reason":"InvalidHost","problem":"no such scheme",
	   "power":"Unknown","identity":"","failures":0,"findings":[],"auditProblem":"no session"}]}`, string(rep.Body))
	assert.Equal(t, 2, rep.Value.Undependable(), "a refused host, and an unusable one")
	d.bmcs.BMCs = append(d.bmcs.BMCs, wire.BMC{Node: "n-3", Machine: "ns/m-3", Dependable: true})
	for _, some := range []struct {
		got   Reply[wire.BMCs]
		nodes []string
	}{
		{must.Do(c.BMCsOf(t.Context(), "prod", "n-2"))(t), []string{"n-2"}}, {must.Do(c.BMCsOf(t.Context(), "prod", "ns/m-3"))(t), []string{"n-3"}},
		{must.Do(c.UndependableBMCs(t.Context()))(t), []string{"n-1", "n-2"}}, {must.Do(c.BMCsOf(t.Context(), "prod", "n-4"))(t), nil},
	} {
		var nodes []string
		for _, b := range some.got.Value.BMCs {
			nodes = append(nodes, b.Node)
		}
		assert.Equal(t, some.nodes, nodes)
	}
	assert.Equal(t, 2, rep.Value.Weak(), "a finding, and a device that could not be looked at")
	assert.Zero(t, wire.BMCs{BMCs: []wire.BMC{{Dependable: true, Refused: []wire.BMCFinding{{Code: "OwnHost"}}}}}.Undependable())
	assert.Zero(t, wire.BMCs{BMCs: []wire.BMC{{Dependable: true}}}.Weak())
}

func TestLooksCarryRouteAndPeer(t *testing.T) {
	d := &fake{}
	c := New(serve(t, d, Roles{}))
	rep := must.Do(c.LookAtBMCs(t.Context(), wire.Order{Verb: wire.TestBMC, Cluster: "prod", Node: "n-1.example", Reason: "new cable"}))(t)
	assert.Equal(t, `{"apiVersion":"v1","bmcs":[]}`+"\n", string(rep.Body))
	must.Do(c.LookAtBMCs(t.Context(), wire.Order{Verb: wire.AuditBMC, Node: "n-2"}))(t)
	must.Do(c.Do(t.Context(), wire.Order{Verb: wire.EnrollBMC, Node: "n-2", Reason: "new board", DryRun: true}))(t)
	require.Len(t, d.orders, 3)
	for i, want := range []wire.Order{
		{Verb: wire.TestBMC, Cluster: "prod", Node: "n-1.example", Reason: "new cable"},
		{Verb: wire.AuditBMC, Node: "n-2"},
		{Verb: wire.EnrollBMC, Node: "n-2", Reason: "new board", DryRun: true, Role: wire.Admin},
	} {
		assert.NotEmpty(t, d.orders[i].Actor)
		d.orders[i].Actor = ""
		assert.Equal(t, want, d.orders[i])
	}
}

// The status counts the devices as the list does.
func TestBMCsAreCounted(t *testing.T) {
	list := wire.BMCs{BMCs: []wire.BMC{
		{Host: "prod/n-1", State: "ok", Dependable: true},
		{Host: "prod/n-2", State: "failed", Dependable: true, Problem: "once"},
		{Host: "prod/n-3", State: "failed"},
		{Host: "prod/n-4", State: "unchecked", Dependable: true, Refused: []wire.BMCFinding{{Code: "NotEnrolled"}}},
		{Host: "prod/n-5", State: "unchecked", Dependable: true},
		{State: "failed", Reason: "InvalidHost", Problem: "no such scheme"},
		{State: "unchecked", Reason: "NotSynced", Problem: "a cluster that is not seen yet"},
	}}
	assert.Equal(t, wire.BMCCount{Total: 6, NotDependable: 3, NotChecked: 1}, list.Count())
	assert.Equal(t, 4, list.Undependable(), "and the cluster that is not seen")
}

// TestConnectionsThatCostALoginAreKept: requests share one, and those that are made at once have at most three, which serve all that follow. The
// client has virtual time: net/http gives up a connection whose writer gets no processor for 50 ms.
func TestConnectionsThatCostALoginAreKept(t *testing.T) {
	path := serve(t, &fake{}, Roles{})
	synctest.Test(t, func(t *testing.T) {
		var dialled atomic.Int64
		c := NewOver("bastion", func(ctx context.Context) (net.Conn, error) { dialled.Add(1); return Dial(ctx, path) }, nil)
		defer c.End()
		for range 5 {
			must.Do(c.Status(t.Context()))(t)
		}
		for range 3 {
			for _, err := range c.Audit(t.Context(), audit.Query{}) {
				require.NoError(t, err)
			}
		}
		assert.Equal(t, int64(1), dialled.Load())
		for range 5 {
			g := errgroup.Group{}
			for range 10 {
				g.Go(func() error { _, err := c.Status(t.Context()); return err })
			}
			require.NoError(t, g.Wait())
		}
		assert.LessOrEqual(t, dialled.Load(), int64(3))
	})
}

// TestLoginIsNoSilence: a connection that takes long, because a person is asked, is no fenced that hangs. Once it is there, the question whether
// fenced answers is asked over a connection of its own, and no answer of ssh to that says anything about fenced.
func TestLoginIsNoSilence(t *testing.T) {
	path := serve(t, &fake{}, Roles{})
	quietly := errors.New("ssh would have to ask")
	var early atomic.Bool
	c := NewOver("bastion", func(ctx context.Context) (net.Conn, error) {
		time.Sleep(100 * time.Millisecond) // several questions
		assert.False(t, early.Load(), "asked before there is a connection")
		return Dial(ctx, path)
	}, func(context.Context) (net.Conn, error) { early.Store(true); return nil, quietly })
	defer c.End()
	c.silence, c.reply = time.Millisecond, time.Millisecond
	must.Do(c.Status(t.Context()))(t)

	asked := make(chan bool)
	d := &fake{block: &block{began: make(chan struct{}), until: make(chan struct{}), ended: make(chan struct{})}}
	slow := serve(t, d, Roles{})
	c = NewOver("bastion", func(ctx context.Context) (net.Conn, error) { return Dial(ctx, slow) }, func(context.Context) (net.Conn, error) { asked <- true; return nil, quietly })
	defer c.End()
	c.silence = 20 * time.Millisecond
	answered := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), wire.Order{Verb: wire.Pause, Reason: "storm"})
		answered <- err
	}()
	for range 3 {
		<-asked
	}
	close(d.block.until)
	for {
		select {
		case <-asked:
		case err := <-answered:
			require.NoError(t, err)
			return
		}
	}
}

// TestEventsAfterARestart: a place in the stream of another start of the daemon is before all of this one.
func TestEventsAfterARestart(t *testing.T) {
	c := New(serve(t, &fake{events: []wire.Event{{Seq: 1, Stream: "one"}, {Seq: 2, Stream: "one"}}}, Roles{}))
	after := func(stream string, seq uint64) (got []uint64) {
		for e, err := range c.EventsAfter(t.Context(), stream, seq, false) {
			require.NoError(t, err)
			got = append(got, e.Seq)
		}
		return got
	}
	assert.Equal(t, []uint64{2}, after("one", 1))
	assert.Empty(t, after("one", 2))
	assert.Equal(t, []uint64{1, 2}, after("another", 2))
	assert.Equal(t, []uint64{2}, after("", 1), "of a client that names none")
}

// endless is a daemon whose events never end, until their reader is given up.
type endless struct {
	fake
	ended chan struct{}
}

// Events gives large events as fast as they are read.
func (d *endless) Events(context.Context, uint64) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		defer close(d.ended)
		for yield(wire.Event{Message: strings.Repeat("x", 4096)}, nil) {
		}
	}
}

// TestReaderThatDoesNotReadIsDisconnected: nobody waits for it, and it keeps no seat.
func TestReaderThatDoesNotReadIsDisconnected(t *testing.T) {
	t.Parallel()
	d := &endless{ended: make(chan struct{})}
	c := must.Do(net.Dial("unix", serve(t, d, Roles{})))(t)
	defer c.Close()
	must.Do(c.Write([]byte("GET /v1/events HTTP/1.1\r\nHost: f\r\n\r\n")))(t)
	<-d.ended
}

// TestOrderWhoseAnswerIsLost: who gave it reads that fenced may carry it out, and only then; also if the answer has begun.
func TestOrderWhoseAnswerIsLost(t *testing.T) {
	for name, answer := range map[string]string{
		"none": "", "cut": "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"run\":", "cut chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"run",
	} {
		t.Run(name, func(t *testing.T) { orderWhoseAnswerIsLost(t, answer) })
	}
}

func orderWhoseAnswerIsLost(t *testing.T, answer string) {
	path := filepath.Join(shortDir(t), "s")
	ln := must.Do(Listen(path))(t)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096)) // whatever was asked
			_, _ = c.Write([]byte(answer))
			_ = c.Close()
		}
	}()
	order := wire.Order{Verb: wire.Pause, Reason: "storm"}
	_, err := New(path).Do(t.Context(), order)
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorIs(t, err, ErrPerhapsSent)
	_, err = New(path).Status(t.Context())
	require.ErrorIs(t, err, ErrUnreachable)
	require.NotErrorIs(t, err, ErrPerhapsSent)
	_, err = New(path+"none").Do(t.Context(), order)
	require.ErrorIs(t, err, ErrUnreachable)
	require.NotErrorIs(t, err, ErrPerhapsSent)
	_, err = New(path).Do(t.Context(), wire.Order{Verb: wire.Fence, Node: "n-1", Reason: "storm", DryRun: true})
	require.ErrorIs(t, err, ErrUnreachable)
	require.NotErrorIs(t, err, ErrPerhapsSent, "a dry run is carried out by nobody")
	_, err = New(path).LookAtBMCs(t.Context(), wire.Order{Verb: wire.TestBMC, Node: "n-1"})
	require.ErrorIs(t, err, ErrUnreachable)
	require.NotErrorIs(t, err, ErrPerhapsSent, "nor is a look")
}

// TestInterruptedOrderMayBeCarriedOut: who presses Ctrl-C reads that it takes nothing back that was sent.
func TestInterruptedOrderMayBeCarriedOut(t *testing.T) {
	d := &fake{block: &block{began: make(chan struct{}), until: make(chan struct{}), ended: make(chan struct{})}}
	c := New(serve(t, d, Roles{}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-d.block.began; cancel() }()
	_, err := c.Do(ctx, wire.Order{Verb: wire.Pause, Reason: "storm"})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, ErrPerhapsSent)
	close(d.block.until)
	<-d.block.ended

	_, err = c.Do(ctx, wire.Order{Verb: wire.Pause, Reason: "storm"}) // over before it began
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrPerhapsSent)
}
