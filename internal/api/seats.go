package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"
)

// CodeTooManyConnections answers a connection for which no seat is left.
const CodeTooManyConnections = "TooManyConnections"

// seatsFor bounds the connections that may be open when one more of a role is let in: all of them,
// of whatever role, and those of the user alone. So viewers leave seats to operators, and both leave
// some to admins, root among them: whoever may only look keeps nobody from pausing the daemon.
var seatsFor = [...]struct{ all, each int }{Viewer: {64, 16}, Operator: {96, 16}, Admin: {160, 64}}

// seats counts the open connections.
type seats struct {
	mu  sync.Mutex
	all int
	of  map[seatOwner]int
}

type seatOwner struct {
	uid  uint32
	role Role
}

// take gives a connection of a role its seat, until leave is called once.
func (s *seats) take(p Peer, role Role) (leave func(), err *Error) {
	bound, owner := seatsFor[role], seatOwner{p.countsAs(), role}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[owner] >= bound.each:
		return nil, tooManyConnections(fmt.Sprintf("%s has %d connections open, as many as one %s may have", p.Actor(), s.of[owner], role))
	case s.all >= bound.all:
		return nil, tooManyConnections(fmt.Sprintf("%d connections are open, and no more are for a caller whose role is %s", s.all, role))
	}
	s.all++
	s.of[owner]++
	return func() { s.leave(owner) }, nil
}

func (s *seats) leave(owner seatOwner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[owner]--; s.of[owner] == 0 {
		delete(s.of, owner)
	}
}

func tooManyConnections(message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Code: CodeTooManyConnections, Message: message,
		Hint: "end what stays connected, such as fencectl status --watch; root has connections of its own"}
}

// countsAs is the uid under which bounds on one user count a peer. Uids without a name here count as
// one: in a user namespace one user has thousands of them (/etc/subuid).
func (p Peer) countsAs() uint32 {
	if p.User == "" && !isSharedAccount(p.UID) {
		return math.MaxUint32 // the kernel's "no user"
	}
	return p.UID
}

// nameTime is how long the names and groups of a user are those of the last look, so that somebody
// who connects without end costs little; maxNames bounds how many users are kept.
const (
	nameTime = time.Second
	maxNames = 1000
)

// names keeps the peers that namePeer gave lately. One goroutine uses it.
type names struct{ of map[[2]uint32]namedPeer }

type namedPeer struct {
	peer Peer
	at   time.Time
}

func (n *names) peer(uid, gid uint32, now time.Time) Peer {
	key := [2]uint32{uid, gid}
	if found, ok := n.of[key]; ok && now.Sub(found.at) < nameTime {
		return found.peer
	}
	if n.of == nil || len(n.of) >= maxNames {
		n.of = map[[2]uint32]namedPeer{}
	}
	p := namePeer(uid, gid)
	n.of[key] = namedPeer{p, now}
	return p
}

// maxViewerLooks is how many answers to viewers are made at the same time. Each holds the view of a cluster
// while it is made, and what is decided waits for that.
const maxViewerLooks = 2

// looks has a place for each answer that is made for a viewer.
type looks chan struct{}

// begin waits for a place, until done is called. Nobody but a viewer needs one.
func (l looks) begin(ctx context.Context, role Role) (done func(), err error) {
	if role > Viewer {
		return func() {}, nil
	}
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
