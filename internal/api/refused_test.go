package api

import (
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

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
	want := func(p Peer, v Verb) Order {
		return Order{Verb: v, Cluster: "prod", Node: "n-1", Actor: p.Actor(), Reason: "it smells"}
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

	assert.Equal(t, []Order{want(other, Fence), want(viewer, Fence), want(other, ConfirmOff), want(oper, Fence), want(oper, Fence), want(root, Fence)}, d.denied)
	assert.Equal(t, []string{CodeNotAuthorised, CodeNotAuthorised, CodeNotAuthorised, "Paused", "Paused", "NoSuchNode"}, d.codes)
}

// A safeguard that only an admin may do without is a role, too.
func TestRefusedWayAroundASafeguardIsTold(t *testing.T) {
	d := &fake{}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	assert.Equal(t, http.StatusForbidden, asked(t, s, oper, "/v1/runs/r-1/abort", `{"reason":"scrapped","asIs":true}`))
	assert.Equal(t, []Order{{Verb: Abort, Run: "r-1", Actor: oper.Actor(), Reason: "scrapped", AsIs: true}}, d.denied)
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
	assert.Equal(t, []Order{{Verb: Pause, Actor: other.Actor()}}, d.denied)
}

// Who lacks a role is told of again after a while, and is forgotten.
func TestDeniedIsToldAgainLater(t *testing.T) {
	d, now := &deniedLog{recorded: map[deniedKey]time.Time{}}, time.Now()
	assert.True(t, d.first(other, Fence, now))
	assert.False(t, d.first(other, Fence, now.Add(deniedEvery-time.Nanosecond)))
	assert.True(t, d.first(other, Pause, now))
	assert.True(t, d.first(other, Fence, now.Add(deniedEvery)))
	assert.Len(t, d.recorded, 1)
}
