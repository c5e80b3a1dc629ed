package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
)

// request asks a new server as a peer, without a socket.
func request(t *testing.T, d Daemon, roles Roles, p Peer, method, target, body string) (int, string) {
	t.Helper()
	return requestOf(t, NewServer(d, roles, log.New(t.Output(), "", 0)), p, method, target, body)
}

func requestOf(t *testing.T, s *Server, p Peer, method, target, body string) (int, string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(s.handler())
	srv.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return withPeer(ctx, p) }
	srv.Start()
	defer srv.Close()
	req := must.Do(http.NewRequestWithContext(t.Context(), method, srv.URL+target, strings.NewReader(body)))(t)
	resp := must.Do(srv.Client().Do(req))(t)
	defer resp.Body.Close()
	text := must.Do(io.ReadAll(resp.Body))(t)
	if resp.StatusCode != http.StatusOK {
		assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, string(text)
}

var (
	root   = Peer{UID: 0, User: "root"}
	viewer = Peer{UID: 4001, User: "vera", Groups: []string{"fenced"}}
	oper   = Peer{UID: 4002, User: "olaf"}
	admin  = Peer{UID: 4003, User: "anna", Groups: []string{"wheel"}}
	other  = Peer{UID: 4004, User: "otto", Groups: []string{"users"}}
	roles  = Roles{Viewer: []string{"group:fenced"}, Operator: []string{"user:olaf"}, Admin: []string{"group:wheel"}}
)

func TestEveryRouteNeedsItsRole(t *testing.T) {
	const ok = `{"reason":"test"}`
	routes := []struct {
		method, target, body string
		need                 wire.Role
	}{
		{"GET", "/v1/status", "", wire.Viewer},
		{"GET", "/v1/nodes/n-1/explain", "", wire.Viewer},
		{"GET", "/v1/nodes/n-1/timeline", "", wire.Viewer},
		{"GET", "/v1/runs", "", wire.Viewer},
		{"GET", "/v1/audit", "", wire.Viewer},
		{"GET", "/v1/report?since=2026-01-01T00:00:00Z", "", wire.Viewer},
		{"GET", "/v1/runs/r-1", "", wire.Viewer},
		{"POST", "/v1/nodes/n-1/fence", ok, wire.Operator},
		{"POST", "/v1/nodes/n-1/fence", `{"reason":"test","dryRun":true}`, wire.Viewer},
		{"POST", "/v1/machines/ns/m-1/fence", `{"reason":"test","dryRun":true}`, wire.Viewer},
		{"POST", "/v1/nodes/n-1/fence", `{"reason":"test","dryRun":true,"yes":true}`, wire.Admin},
		{"GET", "/v1/names", "", wire.Viewer},
		{"POST", "/v1/arm", `{"reason":"test","dryRun":true}`, wire.Admin},
		{"POST", "/v1/nodes/n-1/fence", `{"reason":"test","yes":true}`, wire.Admin},
		{"POST", "/v1/nodes/n-1/unfence", ok, wire.Operator},
		{"GET", "/v1/bmcs", "", wire.Viewer},
		{"POST", "/v1/nodes/n-1/bmc/test", "", wire.Operator},
		{"POST", "/v1/nodes/n-1/bmc/audit", "", wire.Operator},
		{"POST", "/v1/nodes/n-1/bmc/enroll", ok, wire.Admin},
		{"POST", "/v1/nodes/n-1/bmc/enroll", `{"reason":"test","dryRun":true}`, wire.Admin},
		{"POST", "/v1/nodes/n-1/bmc/unfreeze", ok, wire.Admin},
		{"POST", "/v1/nodes/n-1/bmc/release", ok, wire.Admin}, // its other name
		{"POST", "/v1/pause", ok, wire.Operator},
		{"POST", "/v1/resume", ok, wire.Operator},
		{"POST", "/v1/nodes/n-1/hold", ok, wire.Operator},
		{"POST", "/v1/nodes/n-1/hold", `{"reason":"test","for":"4h"}`, wire.Operator},
		{"POST", "/v1/nodes/n-1/release", ok, wire.Operator},
		{"POST", "/v1/hold", `{"reason":"test","zone":"a"}`, wire.Operator},
		{"POST", "/v1/hold", `{"reason":"test","selector":"a=b","dryRun":true}`, wire.Operator},
		{"POST", "/v1/release", `{"reason":"test","rack":"r7"}`, wire.Operator},
		{"POST", "/v1/runs/r-1/abort", ok, wire.Operator},
		{"POST", "/v1/runs/r-1/abort", `{"reason":"test","asIs":true}`, wire.Admin},
		{"POST", "/v1/runs/r-1/abort", `{"reason":"test","asIs":true,"yes":true}`, wire.Admin},
		{"POST", "/v1/runs/r-1/retry", ok, wire.Operator},
		{"POST", "/v1/nodes/n-1/confirm-off", `{"reason":"test","typed":"n-1"}`, wire.Admin},
		{"POST", "/v1/nodes/n-1/confirm-off", `{"reason":"test","dryRun":true}`, wire.Admin},
		{"POST", "/v1/arm", ok, wire.Admin},
		{"POST", "/v1/disarm", ok, wire.Admin},
		{"GET", "/v1/export", "", wire.Admin},
	}
	peers := map[wire.Role]Peer{wire.Nobody: other, wire.Viewer: viewer, wire.Operator: oper, wire.Admin: admin}
	for _, rt := range routes {
		for role, p := range peers {
			t.Run(fmt.Sprintf("%s %s %s as %s", rt.method, rt.target, rt.body, role), func(t *testing.T) {
				d := &fake{runs: wire.Timeline{Runs: []wire.RunRecord{{ID: "r-1"}}}}
				code, body := request(t, d, roles, p, rt.method, rt.target, rt.body)
				if role >= rt.need {
					assert.Equal(t, http.StatusOK, code, body)
					return
				}
				assert.Equal(t, http.StatusForbidden, code)
				assert.Contains(t, body, `"code":"NotAuthorised"`)
				assert.Contains(t, body, "it needs role ")
				assert.Empty(t, d.orders)
			})
		}
	}
}

func TestRoleOfPeer(t *testing.T) {
	for _, tc := range []struct {
		name  string
		roles Roles
		peer  Peer
		want  wire.Role
	}{
		{"root needs no entry", Roles{}, root, wire.Admin},
		{"a stranger is nobody", roles, other, wire.Nobody},
		{"the highest role wins", Roles{Viewer: []string{"user:olaf"}, Operator: []string{"user:olaf"}}, oper, wire.Operator},
		{"a user is not a group of that name", Roles{Admin: []string{"group:olaf"}}, oper, wire.Nobody},
		{"a group is not a user of that name", Roles{Admin: []string{"user:wheel"}}, admin, wire.Nobody},
		{"an entry without a kind gives nothing", Roles{Admin: []string{"olaf", ":olaf"}}, oper, wire.Nobody},
		{"an empty name does not match a nameless user", Roles{Admin: []string{"user:"}}, Peer{UID: 4005}, wire.Nobody},
		{"no peer is nobody", roles, peerFrom(context.Background()), wire.Nobody},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, tc.roles.Of(tc.peer)) })
	}
}

func TestOrderCarriesRouteAndPeer(t *testing.T) {
	d := &fake{result: wire.OrderResult{Run: "r-7", Joined: true, Message: "joined"}}
	code, body := request(t, d, roles, oper, "POST", "/v1/nodes/n%2d1/fence?cluster=prod", `{"reason":" disk \n","offOnly":true}`)
	assert.Equal(t, http.StatusOK, code)
	assert.JSONEq(t, `{"apiVersion":"v1","run":"r-7","joined":true,"message":"joined"}`, body)
	assert.Equal(t, []wire.Order{{Verb: wire.Fence, Cluster: "prod", Node: "n-1", Actor: "olaf (uid 4002)", Role: wire.Operator, Reason: "disk", OffOnly: true}}, d.orders)
}

// TestOrderAboutAMachine: the verbs that take a Machine get it from the path, through the
// client too; the others have no such route.
func TestOrderAboutAMachine(t *testing.T) {
	d := &fake{result: wire.OrderResult{Message: "done"}}
	c := New(serve(t, d, Roles{}))
	for _, v := range []wire.Verb{wire.Fence, wire.Unfence, wire.Hold, wire.Release, wire.EnrollBMC, wire.UnfreezeBMC} {
		d.orders = nil
		_, err := c.Do(t.Context(), wire.Order{Verb: v, Machine: "ns/m-1", Reason: "test"})
		require.NoError(t, err, v)
		require.Len(t, d.orders, 1, v)
		assert.Equal(t, "ns/m-1", d.orders[0].Machine, v)
		assert.Empty(t, d.orders[0].Node, v)
	}
	d.orders = nil
	for _, v := range []wire.Verb{wire.ConfirmOff, wire.TestBMC, wire.Abort, wire.Pause} { // confirm-off and abort need what the Machine means
		_, err := c.Do(t.Context(), wire.Order{Verb: v, Machine: "ns/m-1", Reason: "test"})
		require.Error(t, err, v)
	}
	for _, name := range []string{"ns/a/b", "ns/", "/m-1", "n.s/m-1", "ns/M", "ns/../m-1"} {
		_, err := c.Do(t.Context(), wire.Order{Verb: wire.Fence, Machine: name, Reason: "test"})
		require.Error(t, err, name)
	}
	assert.Empty(t, d.orders)
	x := must.Do(c.Explain(t.Context(), "", "ns/m-1"))(t)
	assert.Equal(t, "ns/m-1", x.Value.Node, "as the daemon was asked")
}

func TestBadRequests(t *testing.T) {
	for _, tc := range []struct {
		name, method, target, body string
		status                     int
		want                       string
	}{
		{"no body", "POST", "/v1/pause", "", 400, "an order needs a reason"},
		{"no reason", "POST", "/v1/pause", "{}", 400, "an order needs a reason"},
		{"blank reason", "POST", "/v1/pause", `{"reason":" \t"}`, 400, "an order needs a reason"},
		{"C1 in the reason", "POST", "/v1/pause", `{"reason":"a\u009b2Jb"}`, 400, "cannot be seen: U+009B"},
		{"two lines in the reason", "POST", "/v1/pause", `{"reason":"a\nb"}`, 400, "control characters"},
		{"bidi in the reason", "POST", "/v1/pause", `{"reason":"a\u202eb"}`, 400, "cannot be seen: U+202E"},
		{"line separator in the reason", "POST", "/v1/pause", `{"reason":"a\u2028b"}`, 400, "cannot be seen: U+2028"},
		{"bidi in a test's reason", "POST", "/v1/nodes/n/bmc/test", `{"reason":"a\u2067b"}`, 400, "cannot be seen: U+2067"},
		{"terminal escape in the reason", "POST", "/v1/pause", `{"reason":"a\u001b[2Jb"}`, 400, "control characters"},
		{"long reason", "POST", "/v1/pause", `{"reason":"` + strings.Repeat("x", maxReason+1) + `"}`, 400, "longer than"},
		{"actor in the body", "POST", "/v1/pause", `{"reason":"a","actor":"root"}`, 400, "unknown field"},
		{"two values", "POST", "/v1/pause", `{"reason":"a"} {}`, 400, "more than one"},
		{"not JSON", "POST", "/v1/pause", `reason=a`, 400, "read the order"},
		{"wrong type", "POST", "/v1/pause", `{"reason":1}`, 400, "read the order"},
		{"dry run of a pause", "POST", "/v1/pause", `{"reason":"a","dryRun":true}`, 400, "takes no "},
		{"name not typed", "POST", "/v1/nodes/n/confirm-off", `{"reason":"a"}`, 400, "not the node's name"},
		{"another name typed", "POST", "/v1/nodes/n/confirm-off", `{"reason":"a","typed":"m","yes":true}`, 400, "not the node's name"},
		{"typed for nothing", "POST", "/v1/nodes/n/hold", `{"reason":"a","typed":"n"}`, 400, "takes no typed"},
		{"fence as it is", "POST", "/v1/nodes/n/fence", `{"reason":"a","asIs":true}`, 400, "takes no asIs"},
		{"fence for a while", "POST", "/v1/nodes/n/fence", `{"reason":"a","for":"1h"}`, 400, "takes no for"},
		{"hold for no time", "POST", "/v1/nodes/n/hold", `{"reason":"a","for":"0s"}`, 400, "no time to wait"},
		{"hold for less than no time", "POST", "/v1/nodes/n/hold", `{"reason":"a","for":"-1h"}`, 400, "no time to wait"},
		{"hold for a number", "POST", "/v1/nodes/n/hold", `{"reason":"a","for":3600}`, 400, "read the order"},
		{"hold for ages", "POST", "/v1/nodes/n/hold", `{"reason":"a","for":"9000h"}`, 400, "longer than"},
		{"dry run of a hold", "POST", "/v1/nodes/n/hold", `{"reason":"a","dryRun":true}`, 400, "takes no dryRun"},
		{"hold of nothing", "POST", "/v1/hold", `{"reason":"a"}`, 400, "0 are given"},
		{"hold of two things", "POST", "/v1/hold", `{"reason":"a","zone":"a","rack":"b"}`, 400, "2 are given"},
		{"hold of a Node and its zone", "POST", "/v1/nodes/n/hold", `{"reason":"a","zone":"a"}`, 400, "takes no selector, zone or rack"},
		{"hold of a selector that is a set", "POST", "/v1/hold", `{"reason":"a","selector":"a in (b)"}`, 400, "is not KEY=VALUE"},
		{"hold of a variable that is not set", "POST", "/v1/hold", `{"reason":"a","selector":"rack="}`, 400, "is not KEY=VALUE"},
		{"hold of a label twice", "POST", "/v1/hold", `{"reason":"a","selector":"a=b,a=c"}`, 400, "is given twice"},
		{"hold of a terminal escape", "POST", "/v1/hold", `{"reason":"a","zone":"a\u001b[2J"}`, 400, "is not KEY=VALUE"},
		{"fence of a zone", "POST", "/v1/nodes/n/fence", `{"reason":"a","zone":"a"}`, 400, "takes no selector, zone or rack"},
		{"pause of a zone", "POST", "/v1/pause", `{"reason":"a","zone":"a"}`, 400, "takes no selector, zone or rack"},
		{"dry run of a test", "POST", "/v1/nodes/n/bmc/test", `{"dryRun":true}`, 400, "bmc/test takes no dryRun"},
		{"test of a rack", "POST", "/v1/nodes/n/bmc/test", `{"rack":"r7"}`, 400, "bmc/test takes no selector, zone or rack"},
		{"test for a time", "POST", "/v1/nodes/n/bmc/audit", `{"for":"1h"}`, 400, "bmc/audit takes no for"},
		{"dry run of an unfreeze", "POST", "/v1/nodes/n/bmc/unfreeze", `{"reason":"a","dryRun":true}`, 400, "takes no "},
		{"off-only enrolment", "POST", "/v1/nodes/n/bmc/enroll", `{"reason":"a","offOnly":true}`, 400, "takes no "},
		{"enrolment without a reason", "POST", "/v1/nodes/n/bmc/enroll", `{"dryRun":true}`, 400, "an order needs a reason"},
		{"terminal escape in a test's reason", "POST", "/v1/nodes/n/bmc/test", `{"reason":"a\u001b[2Jb"}`, 400, "control characters"},
		{"reading a test", "GET", "/v1/nodes/n/bmc/test", "", 405, "this route takes POST"},
		{"oversized", "POST", "/v1/pause", `{"reason":"` + strings.Repeat("x", maxBodyBytes) + `"}`, 413, "TooLarge"},
		{"oversized trailer", "POST", "/v1/pause", `{"reason":"a"}` + strings.Repeat(" ", maxBodyBytes), 413, "TooLarge"},
		{"unknown route", "GET", "/v1/poem", "", 404, `no route \"/v1/poem\"`},
		{"unclean path", "GET", "/v1//status", "", 404, "no route"},
		{"node with a slash", "GET", "/v1/nodes/a%2Fb/explain", "", 400, "not the name of a Node"},
		{"wrong method", "GET", "/v1/nodes/n-1/fence", "", 405, "this route takes POST"},
		{"wrong method", "DELETE", "/v1/status", "", 405, "this route takes GET"},
		{"since is not a time", "GET", "/v1/runs?since=yesterday", "", 400, "since="},
		{"after is not a number", "GET", "/v1/events?after=-1", "", 400, "after="},
		{"no such run", "GET", "/v1/runs/r-9", "", 404, `no run \"r-9\"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &fake{}
			code, body := request(t, d, roles, root, tc.method, tc.target, tc.body)
			assert.Equal(t, tc.status, code, body)
			assert.Contains(t, body, tc.want)
			assert.Empty(t, d.orders)
		})
	}
}

func TestErrorsOfTheDaemon(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
		body   string
	}{
		{Refused("ZoneBreaker", "zone a is down", "wait"), 422, `{"apiVersion":"v1","code":"ZoneBreaker","message":"zone a is down","hint":"wait"}`},
		{fmt.Errorf("judge: %w", Conflict("NoRun", "busy", "")), 409, `{"apiVersion":"v1","code":"NoRun","message":"busy","hint":""}`},
		{fmt.Errorf("read BMC: %w", context.DeadlineExceeded), 504, `{"apiVersion":"v1","code":"Timeout","message":"read BMC: context deadline exceeded","hint":""}`},
		{errors.New("disk full"), 500, `{"apiVersion":"v1","code":"Internal","message":"disk full","hint":"see the journal: journalctl -u fenced"}`},
	} {
		code, body := request(t, &fake{err: tc.err}, roles, root, "POST", "/v1/pause", `{"reason":"a"}`)
		assert.Equal(t, tc.status, code)
		assert.JSONEq(t, tc.body, body)
	}
}

func TestAnOrderOutlivesItsCaller(t *testing.T) {
	d := &fake{block: &block{make(chan struct{}), make(chan struct{}), make(chan struct{})}}
	handler, noticed := NewServer(d, roles, log.New(t.Output(), "", 0)).handler(), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := withPeer(r.Context(), root)
		context.AfterFunc(ctx, func() { close(noticed) })
		handler.ServeHTTP(w, r.WithContext(ctx))
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, "POST", srv.URL+"/v1/pause", strings.NewReader(`{"reason":"storm"}`))
		if err == nil {
			_, err = srv.Client().Do(req)
		}
		gone <- err
	}()
	<-d.block.began
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	<-noticed
	close(d.block.until)
	<-d.block.ended
	srv.Close() // the answer is written to nobody
	require.Len(t, d.orders, 1)
	assert.Contains(t, d.orders[0].Actor, root.User)
}

// TestEveryRowRefusesLowerRoles: a row that is added to a table is guarded by its role,
// and refuses before anything is done.
func TestEveryRowRefusesLowerRoles(t *testing.T) {
	peers := []Peer{other, viewer, oper, admin}
	names := strings.NewReplacer("{node}", "n-1", "{id}", "r-1", "{namespace}", "ns", "{machine}", "m-1")
	refuses := func(method, pattern string, need wire.Role) {
		require.Greater(t, need, wire.Nobody, pattern)
		for role, p := range peers[:need] {
			d := &fake{}
			code, body := request(t, d, roles, p, method, names.Replace(pattern), `{"reason":"test"}`)
			assert.Equal(t, http.StatusForbidden, code, "%s as %s", pattern, wire.Role(role))
			assert.Contains(t, body, need.String(), pattern)
			assert.Empty(t, d.orders, pattern)
		}
	}
	for _, r := range reads {
		refuses(r.method, r.pattern, r.need)
	}
	for _, v := range wire.Verbs {
		for _, pattern := range patterns(v) {
			refuses(http.MethodPost, pattern, v.Need)
		}
	}
}

// TestEveryFieldIsOfABody: a misspelt field of a row would refuse what the verb takes.
func TestEveryFieldIsOfABody(t *testing.T) {
	known := map[string]bool{}
	for _, f := range bodyFields {
		known[f.name] = true
	}
	for _, v := range wire.Verbs {
		for _, name := range v.Takes {
			assert.True(t, known[name], "%s takes %s", v.Name, name)
		}
	}
}

// TestNodeNameLaw: what is a Node's name is what the API server takes for one.
func TestNodeNameLaw(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-cA-Z0-9.-]{0,8}`), rapid.StringMatching(`[a-c0-9.-]{250,255}`)).Draw(t, "name")
		if want := len(validation.IsDNS1123Subdomain(name)) == 0; (CheckNode(name) == nil) != want {
			t.Fatalf("%q: %t wanted, got %v", name, want, CheckNode(name))
		}
	})
	require.NoError(t, CheckNode(strings.Repeat("a", 253)))
	require.Error(t, CheckNode(strings.Repeat("a", 254)))
}

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		check func(string) error
		name  string
		good  bool
	}{
		{CheckCluster, "prod", true},
		{CheckCluster, "Prod_1.eu-west", true},
		{CheckCluster, "", false},
		{CheckCluster, "prod\n", false},
		{CheckCluster, "-prod", false},
		{CheckCluster, strings.Repeat("c", 64), false},
		{CheckTarget, "mfx0k2a1-0a1b2c", true},
		{CheckTarget, "mfx0k2a1-0a1b2c\n", false},
		{CheckTarget, "../pause", false},
		{CheckNode, "worker-3.example.com", true},
		{CheckNode, "worker-3\n", false},
		{CheckNode, "worker-3\u202e", false},
		{CheckNode, "Worker-3", false},
		{CheckNode, "worker_3", false},
		{CheckNode, "..", false},
	} {
		assert.Equal(t, tc.good, tc.check(tc.name) == nil, "%q", tc.name)
	}
	require.ErrorContains(t, CheckNode("a\u202e\u009b"), `"a\u202e\u009b" is not the name of a Node`, "what is repeated is harmless")
	assert.Less(t, len(CheckNode(strings.Repeat("\u009b", 5000)).Error()), 500)
}

// TestWrongNamesGoNowhere: a name that nothing has is refused before it is logged,
// stored or given to the daemon, whoever asks and whatever for.
func TestWrongNamesGoNowhere(t *testing.T) {
	const evil = "n-1\n\u009b2J\u202e"
	for _, target := range []string{
		"GET /v1/nodes/EVIL/explain", "GET /v1/nodes/EVIL/timeline", "GET /v1/runs/EVIL",
		"GET /v1/plan?cluster=EVIL", "GET /v1/check-config?cluster=EVIL", "GET /v1/bmcs?cluster=EVIL", "GET /v1/runs?cluster=EVIL",
		"POST /v1/nodes/EVIL/fence", "POST /v1/nodes/EVIL/unfence", "POST /v1/nodes/EVIL/hold", "POST /v1/nodes/EVIL/release",
		"POST /v1/nodes/EVIL/confirm-off", "POST /v1/nodes/EVIL/bmc/test", "POST /v1/nodes/EVIL/bmc/audit",
		"POST /v1/nodes/EVIL/bmc/enroll", "POST /v1/nodes/EVIL/bmc/release", "POST /v1/runs/EVIL/abort", "POST /v1/runs/EVIL/retry",
		"POST /v1/nodes/n-1/hold?cluster=EVIL", "POST /v1/pause?cluster=EVIL", "POST /v1/resume?cluster=EVIL",
		"POST /v1/arm?cluster=EVIL", "POST /v1/disarm?cluster=EVIL",
		"GET /v1/machines/ns/EVIL/explain", "GET /v1/machines/EVIL/m-1/explain", "POST /v1/machines/ns/EVIL/fence", "POST /v1/machines/EVIL/m-1/hold",
	} {
		method, path, _ := strings.Cut(target, " ")
		escaped := url.PathEscape(evil)
		if strings.Contains(path, "cluster=EVIL") {
			escaped = url.QueryEscape(evil)
		}
		for _, p := range []Peer{admin, other} {
			var logged strings.Builder
			d := &fake{}
			s := NewServer(d, roles, log.New(&logged, "", 0))
			body := `{"reason":"x"}`
			if method == http.MethodGet {
				body = ""
			}
			code, answer := requestOf(t, s, p, method, strings.ReplaceAll(path, "EVIL", escaped), body)
			assert.Equal(t, http.StatusBadRequest, code, "%s: %s", target, answer)
			assert.Contains(t, answer, `\\n`, target)
			assert.Empty(t, logged.String(), target)
			assert.Empty(t, append(d.orders, d.denied...), target)
			assert.Equal(t, wire.RunFilter{}, d.filter, target)
		}
	}
}

// TestClientKeepsNamesApart: a name that is a path is one name, which is refused.
func TestClientKeepsNamesApart(t *testing.T) {
	d := &fake{}
	c := New(serve(t, d, Roles{}))
	_, err := c.Do(t.Context(), wire.Order{Verb: wire.Hold, Node: "n-1/release?cluster=prod", Reason: "x"})
	e, ok := errors.AsType[*Error](err)
	require.True(t, ok)
	assert.Equal(t, http.StatusBadRequest, e.Status)
	assert.Empty(t, d.orders)
}

func TestReason(t *testing.T) {
	for code, good := range map[string]bool{
		"disk fails, ticket 4711":        true,
		"Netzteil getauscht, 50 €":       true,
		"電源\u3000交換":                     true, // a space of its script
		"שרת תקול":                       true,
		"":                               false,
		"a\nb":                           false,
		"a\tb":                           false,
		"a\x7fb":                         false,
		"a\u0085b":                       false,
		"a\u200bb":                       false, // no width
		"a\u2029b":                       false,
		"a\u2066b\u2069":                 false,
		"a\ufeffb":                       false,
		"a\ue000b":                       false, // private use
		"a\U000e0041b":                   false, // a tag
		"a\xffb":                         false,
		strings.Repeat("x", maxReason):   true,
		strings.Repeat("x", maxReason+1): false,
	} {
		assert.Equal(t, good, CheckReason(code) == nil, "%q", code)
	}
}
