package api

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// byLogin is a peer that somebody became after they logged in under another name.
func byLogin(login, is Peer) Peer {
	is.Login = &Login{UID: login.UID, User: login.User}
	return is
}

func secondOf(verbs ...wire.Verb) *twoPersonRule {
	return NewServer(&fake{}, Roles{}, log.Default(), verbs...).twoPersons
}

// TestSecondPerson: the same order by another person carries it out, with both names.
func TestSecondPerson(t *testing.T) {
	s, now := secondOf(wire.ConfirmOff), time.Now()
	root := byLogin(oper, root)
	word := func(p Peer, change func(*wire.Order)) (wire.Order, error) {
		o := wire.Order{Verb: wire.ConfirmOff, Cluster: "prod", Node: "n-1", Reason: p.User + " looked", Actor: p.Actor(), Typed: "n-1"}
		if change != nil {
			change(&o)
		}
		o, _, err := s.check(o, p, now)
		return o, err
	}
	refused := func(_ wire.Order, err error) {
		t.Helper()
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, CodeSecondPersonNeeded, e.Code)
		assert.Equal(t, http.StatusConflict, e.Status)
	}
	refused(word(admin, nil))
	refused(word(admin, nil))
	refused(word(root, func(o *wire.Order) { o.Node = "n-2" }))
	refused(word(root, func(o *wire.Order) { o.Yes = true }))
	refused(word(root, func(o *wire.Order) { o.Shown = "another BMC" }))
	refused(word(root, func(o *wire.Order) { o.Node, o.Machine = "", "ns/n-1" }))
	refused(word(admin, func(o *wire.Order) { o.Node, o.Machine = "", "ns/n-2" })) // another Machine than root's
	o := must.Do(word(root, nil))(t)
	assert.Equal(t, "anna (uid 4003) and olaf (uid 4002) as root (uid 0)", o.Actor)
	assert.Equal(t, "anna looked; root looked", o.Reason)
	refused(word(root, nil)) // the first word is used up

	now = now.Add(secondWithin)
	refused(word(admin, nil)) // and this one was forgotten
	now = now.Add(secondWithin - time.Second)
	must.Do(word(root, nil))(t)
}

// TestSecondPersonNeedNotNameTheOnlyCluster: where fenced serves one cluster, naming it makes no other order.
func TestSecondPersonNeedNotNameTheOnlyCluster(t *testing.T) {
	give := func(s *twoPersonRule, p Peer, o wire.Order) error {
		_, _, err := s.check(o, p, time.Now())
		return err
	}
	for verb, same := range map[wire.Verb]bool{wire.ConfirmOff: true, wire.EnrollBMC: true, wire.Arm: true, wire.Resume: false} { // of all, or of one
		o := wire.Order{Verb: verb, Cluster: "prod"}
		if verb.Row().Of == wire.OfNode {
			o.Node = "n-1"
		}
		for only, same := range map[string]bool{"prod": same, "": false, "lab": false} {
			s := NewServer(&fake{only: only}, Roles{}, log.Default(), verb).twoPersons
			named, unnamed := o, o
			unnamed.Cluster = ""
			require.Error(t, give(s, admin, named))
			assert.Equal(t, same, give(s, oper, unnamed) == nil, "%s, of the only cluster %q", verb, only)
		}
	}
}

func TestSecondPersonReleasesTheSameRack(t *testing.T) {
	s, now := secondOf(wire.Release), time.Now()
	give := func(p Peer, g wire.Group) error {
		_, _, err := s.check(wire.Order{Verb: wire.Release, Cluster: "prod", Group: g, Actor: p.Actor()}, p, now)
		return err
	}
	require.Error(t, give(admin, wire.Group{Rack: "r7"}))
	require.Error(t, give(oper, wire.Group{Rack: "r8"}))
	require.Error(t, give(oper, wire.Group{Zone: "r7"}))
	require.NoError(t, give(oper, wire.Group{Rack: "r7"}))
}

// TestOrderAboutLabels: the client sends it where no Node is named.
func TestOrderAboutLabels(t *testing.T) {
	d := &fake{result: wire.OrderResult{Message: "done"}}
	want := wire.Order{Verb: wire.Hold, Cluster: "prod", Reason: "test", Group: wire.Group{Selector: "a/b=c,d=e"}, DryRun: true}
	must.Do(New(serve(t, d, Roles{})).Do(t.Context(), want))(t)
	require.Len(t, d.orders, 1)
	got := d.orders[0]
	assert.Equal(t, want, wire.Order{Verb: got.Verb, Cluster: got.Cluster, Reason: got.Reason, Group: got.Group, DryRun: got.DryRun})
}

// TestSecondPersonIsNotAskedFor what is not configured, and what only looks.
func TestSecondPersonIsNotAskedFor(t *testing.T) {
	s := secondOf(wire.ConfirmOff)
	for _, o := range []wire.Order{{Verb: wire.Pause}, {Verb: wire.ConfirmOff, DryRun: true}} {
		got, _, err := s.check(o, root, time.Now())
		require.NoError(t, err)
		assert.Equal(t, o, got)
	}
}

// TestSecondPersonIsBounded: whoever gives orders without end does not fill the memory, and takes no place that others need: one person
// alone is never so many.
func TestSecondPersonIsBounded(t *testing.T) {
	s, now := secondOf(wire.Fence), time.Now()
	give := func(p Peer, node string) error {
		_, _, err := s.check(wire.Order{Verb: wire.Fence, Node: node, Actor: p.Actor()}, p, now)
		return err
	}
	var e *Error
	for i := range 2 * maxFirsts {
		require.ErrorAs(t, give(oper, time.Duration(i).String()), &e)
	}
	assert.Equal(t, CodeConflict, e.Code)
	assert.Len(t, s.waiting, maxFirstsEach)
	require.ErrorAs(t, give(admin, "n-1"), &e)
	assert.Equal(t, CodeSecondPersonNeeded, e.Code, "of another person")
	require.NoError(t, give(oper, "n-1"), "an order that waits for the second person has its place")
	for i := range uint32(2 * maxFirsts) {
		require.Error(t, give(Peer{UID: 10_000 + i, User: "someone"}, "of-someone-"+time.Duration(i).String()))
	}
	assert.Len(t, s.waiting, maxFirsts)
}

// TestSecondPersonOverHTTP: the daemon hears of the order only when two gave it.
func TestSecondPersonOverHTTP(t *testing.T) {
	d := &fake{}
	s := NewServer(d, roles, log.New(t.Output(), "", 0), wire.Fence)
	order := s.order(wire.Fence)
	for i, p := range []Peer{admin, admin, oper} {
		r := must.Do(http.NewRequestWithContext(withPeer(t.Context(), p), "POST", "/", nil))(t)
		r.SetPathValue("node", "n-1")
		r.Body = io.NopCloser(strings.NewReader(`{"reason":"disk"}`))
		_, err := order(t.Context(), r)
		assert.Equal(t, i < 2, err != nil)
	}
	assert.Equal(t, []string{CodeSecondPersonNeeded, CodeSecondPersonNeeded}, d.codes, "both words are on record")
	require.Len(t, d.orders, 1)
	assert.Equal(t, "anna (uid 4003) and olaf (uid 4002)", d.orders[0].Actor)
}

// TestSecondPersonAndRefusal: an order that a gate refuses uses nobody's word up, and
// one that is carried out does.
func TestSecondPersonAndRefusal(t *testing.T) {
	d := &fake{err: Refused("Paused", "the cluster is paused", "")}
	s := NewServer(d, roles, log.New(t.Output(), "", 0), wire.Fence)
	give := func(p Peer) error {
		_, err := s.carryOut(t.Context(), nil, wire.Order{Verb: wire.Fence, Node: "n-1", Reason: "disk", Actor: p.Actor()}, p)
		return err
	}
	needed := func(err error) bool {
		e, ok := errors.AsType[*Error](err)
		return ok && e.Code == CodeSecondPersonNeeded
	}
	require.True(t, needed(give(admin)))
	for range 2 {
		require.ErrorContains(t, give(oper), "paused")
	}
	d.err = nil
	require.NoError(t, give(oper))
	assert.Equal(t, "anna (uid 4003) and olaf (uid 4002)", d.orders[len(d.orders)-1].Actor)
	assert.Equal(t, "disk", d.orders[len(d.orders)-1].Reason)
	assert.True(t, needed(give(oper)))
}

// asked gives an order to a server as a peer, and its HTTP status.
func asked(t *testing.T, s *Server, p Peer, target, body string) int {
	t.Helper()
	code, _ := requestOf(t, s, p, http.MethodPost, target, body)
	return code
}

// An order that is refused is on record with who gave it, what and why; each by a
// gate, and those for want of a role once in a while.
func TestRefusedOrdersAreTold(t *testing.T) {
	d := &fake{}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	const fence, reason = "/v1/nodes/n-1/fence?cluster=prod", `{"reason":"it smells"}`
	want := func(p Peer, v wire.Verb) wire.Order {
		return wire.Order{Verb: v, Cluster: "prod", Node: "n-1", Actor: p.Actor(), Reason: "it smells"}
	}

	assert.Equal(t, http.StatusForbidden, asked(t, s, other, fence, reason))
	assert.Equal(t, http.StatusForbidden, asked(t, s, other, fence, reason), "and again, which is not told")
	assert.Equal(t, http.StatusForbidden, asked(t, s, viewer, fence, reason))
	assert.Equal(t, http.StatusForbidden, asked(t, s, other, "/v1/nodes/n-1/confirm-off?cluster=prod", reason))
	d.err = Refused("Paused", "everything is paused", "")
	for range 2 {
		assert.Equal(t, http.StatusUnprocessableEntity, asked(t, s, oper, fence, reason))
	}
	d.err = NotFound("NoSuchNode", "no node is called n-1", "")
	assert.Equal(t, http.StatusNotFound, asked(t, s, root, fence, reason))

	assert.Equal(t, []wire.Order{want(other, wire.Fence), want(viewer, wire.Fence), want(other, wire.ConfirmOff), want(oper, wire.Fence), want(oper, wire.Fence), want(root, wire.Fence)}, d.denied)
	assert.Equal(t, []string{CodeNotAuthorised, CodeNotAuthorised, CodeNotAuthorised, "Paused", "Paused", "NoSuchNode"}, d.codes)
}

// A look at BMCs logs in to them: who lacks the role for it is on record like who may not order anything else.
func TestRefusedLooksAreTold(t *testing.T) {
	d := &fake{}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	for range 2 {
		assert.Equal(t, http.StatusForbidden, asked(t, s, viewer, "/v1/nodes/n-1/bmc/test?cluster=prod", ""))
	}
	assert.Equal(t, http.StatusForbidden, asked(t, s, viewer, "/v1/nodes/n-1/bmc/audit", `{"reason":"it smells"}`))
	assert.Equal(t, []wire.Order{
		{Verb: wire.TestBMC, Cluster: "prod", Node: "n-1", Actor: viewer.Actor()}, {Verb: wire.AuditBMC, Node: "n-1", Actor: viewer.Actor(), Reason: "it smells"},
	}, d.denied)
	assert.Equal(t, []string{CodeNotAuthorised, CodeNotAuthorised}, d.codes)
}

// A safeguard that only an admin may do without is a role, too.
func TestRefusedWayAroundASafeguardIsTold(t *testing.T) {
	d := &fake{}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	assert.Equal(t, http.StatusForbidden, asked(t, s, oper, "/v1/runs/r-1/abort", `{"reason":"scrapped","asIs":true}`))
	assert.Equal(t, []wire.Order{{Verb: wire.Abort, Run: "r-1", Actor: oper.Actor(), Reason: "scrapped", AsIs: true}}, d.denied)
}

// What was carried out tells of itself, and what is no order is not told.
func TestWhatIsNoRefusedOrderIsNotTold(t *testing.T) {
	d := &fake{}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	assert.Equal(t, http.StatusOK, asked(t, s, oper, "/v1/pause", `{"reason":"storm"}`))
	for _, body := range []string{"", `{"reason":"a","asIs":true}`, `{"reason":"` + strings.Repeat("x", maxBodyBytes) + `"}`} {
		assert.NotEqual(t, http.StatusOK, asked(t, s, oper, "/v1/pause", body))
	}
	d.err = Refused("Paused", "everything is paused", "")
	assert.Equal(t, http.StatusUnprocessableEntity, asked(t, s, oper, "/v1/nodes/n-1/fence", `{"reason":"a","dryRun":true}`))
	assert.Empty(t, d.denied)
}

// What somebody without a role writes goes into no record unless it is a sentence.
func TestRefusedReasonIsASentence(t *testing.T) {
	d := &fake{}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	assert.Equal(t, http.StatusForbidden, asked(t, s, other, "/v1/pause", `{"reason":"a\u001b[2Jb"}`))
	assert.Equal(t, []wire.Order{{Verb: wire.Pause, Actor: other.Actor()}}, d.denied)
}

// Who lacks a role is told of again after a while, and is forgotten.
func TestDeniedIsToldAgainLater(t *testing.T) {
	d, now := &deniedLog{recorded: map[deniedKey]time.Time{}}, time.Now()
	assert.True(t, d.first(other, wire.Fence, now))
	assert.False(t, d.first(other, wire.Fence, now.Add(deniedEvery-time.Nanosecond)))
	assert.True(t, d.first(other, wire.Pause, now))
	assert.True(t, d.first(other, wire.Fence, now.Add(deniedEvery)))
	assert.Len(t, d.recorded, 1)
}

// What a name means is found before anything looks at the target: the daemon, the rule of two persons and
// the audit log see the Node and not the name that was given.
func TestOrderIsAboutWhatItsNameMeans(t *testing.T) {
	node := wire.Named{Cluster: "prod", Node: "worker-3"}
	d := &fake{means: map[wire.Named]wire.Named{
		{Node: "r-1"}: node, {Run: "worker-3"}: {Cluster: "prod", Run: "r-1"}, {Machine: "ns/m"}: node, {Cluster: "prod", Run: "r-1"}: {Cluster: "prod", Run: "r-1"},
	}}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	for path, want := range map[string]wire.Named{
		"/v1/nodes/r-1/fence": node, "/v1/nodes/r-1/hold": node, "/v1/machines/ns/m/unfence": node, "/v1/nodes/worker-3/hold": {Node: "worker-3"},
		"/v1/runs/worker-3/abort": {Cluster: "prod", Run: "r-1"}, "/v1/runs/r-1/retry?cluster=prod": {Cluster: "prod", Run: "r-1"},
		"/v1/nodes/r-1/bmc/enroll": {Node: "r-1"}, // is about the devices of the host that it names
	} {
		d.orders = nil
		code, body := requestOf(t, s, admin, http.MethodPost, path, `{"reason":"x"}`)
		require.Equal(t, http.StatusOK, code, body)
		require.Len(t, d.orders, 1, path)
		assert.Equal(t, want, d.orders[0].Named(), path)
		var res wire.OrderResult
		require.NoError(t, json.Unmarshal([]byte(body), &res))
		if given := strings.Contains(path, "r-1/retry") || strings.Contains(path, "worker-3/hold") || strings.Contains(path, "bmc"); given {
			assert.Nil(t, res.Named, path)
		} else {
			assert.Equal(t, &want, res.Named, path)
		}
	}
	code, body := requestOf(t, s, admin, http.MethodPost, "/v1/nodes/r-1/confirm-off", `{"reason":"x","typed":"r-1","yes":true}`)
	assert.Equal(t, http.StatusBadRequest, code, "only the name of the Node confirms")
	assert.Contains(t, body, "worker-3")

	d.err, d.orders = Refused("AmbiguousName", "r-1 means more than one thing", ""), nil
	code, _ = requestOf(t, s, admin, http.MethodPost, "/v1/nodes/r-1/fence", `{"reason":"x"}`)
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Empty(t, d.orders)
	assert.Equal(t, []string{"AmbiguousName"}, d.codes, "it is on record")
}

// explain and timeline resolve names as orders do; a run has a timeline of its own.
func TestReadIsAboutWhatItsNameMeans(t *testing.T) {
	d := &fake{runs: wire.Timeline{Runs: []wire.RunRecord{{ID: "r-1"}}}, means: map[wire.Named]wire.Named{
		{Node: "r-1", Cluster: "prod"}: {Cluster: "prod", Run: "r-1"}, {Node: "r-1"}: {Cluster: "prod", Node: "worker-3"},
	}}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	_, body := requestOf(t, s, admin, http.MethodGet, "/v1/nodes/r-1/explain", "")
	assert.Contains(t, body, `"node":"worker-3"`)
	for path, want := range map[string]wire.RunFilter{
		"/v1/nodes/r-1/timeline?cluster=prod": {ID: "r-1"}, "/v1/nodes/n-1/timeline": {Node: "n-1"}, "/v1/machines/ns/m/timeline": {Machine: "ns/m"},
	} {
		code, body := requestOf(t, s, admin, http.MethodGet, path, "")
		assert.Equal(t, http.StatusOK, code, body)
		assert.Equal(t, want, d.filter, path)
	}
}
