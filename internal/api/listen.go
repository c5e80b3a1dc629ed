package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// socketMode lets the socket's group in; roles decide what its members may do.
const socketMode = 0o660

// Listen makes the control socket with mode 0660. A path left by a daemon that died is
// removed, but only if it is a socket and nobody answers there.
func Listen(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The mode set before bind is the mode the path is born with: at no moment
	// is it wider than at the end, whatever the umask.
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		ctlErr := raw.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(ctlErr, err)
	}}
	ln, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("set the mode of %s: %w", path, err), ln.Close())
	}
	return ln, nil
}

// SetGroup gives the socket to a group, if it is not its own already by its directory.
func SetGroup(path, group string) error {
	g, err := user.LookupGroup(group)
	if err != nil {
		return fmt.Errorf("find the group of %s: %w", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && strconv.FormatUint(uint64(s.Gid), 10) == g.Gid {
		return nil
	}
	gid, err := strconv.Atoi(g.Gid)
	if err == nil {
		err = os.Lchown(path, -1, gid)
	}
	if err != nil {
		return fmt.Errorf("give %s to group %s: %w", path, group, err)
	}
	return nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen on %s: it exists and is not a socket", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("listen on %s: another fenced answers there", path), c.Close())
	}
	// Only a refusal proves that nobody listens; a full backlog does not.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s: a socket is there and its owner is in doubt: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the stale socket: %w", err)
	}
	return nil
}

// refuseTime bounds how long a refusal takes; the kernel has room for it in a new connection.
const refuseTime = 100 * time.Millisecond

// peerListener lets in whoever has a role and a seat. Anybody else is refused before anything is
// read, and nothing of them stays open.
type peerListener struct {
	net.Listener
	roles    Roles
	refusals *refusalLog
	helper   string // the socket of fenced-login
	names    names
	seats    seats
	open     sync.WaitGroup // the connections that were let in
}

// Accept waits for a connection that is let in.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		pc, err := l.admit(c)
		if err == nil {
			return pc, nil
		}
		l.refusals.printf(time.Now(), "control socket: refused: %v", err)
		refuse(c, errorOf(err))
	}
}

func (l *peerListener) admit(c net.Conn) (*peerConn, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("a connection over %s has no peer credentials", c.LocalAddr().Network())
	}
	name := func(uid, gid uint32) Peer { return l.names.peer(uid, gid, time.Now()) }
	p, release, err := peerOf(uc, name, l.helper)
	if err != nil {
		return nil, err
	}
	leave, err := l.seat(p)
	if err != nil {
		release()
		return nil, err
	}
	l.open.Add(1)
	return &peerConn{Conn: c, peer: p, release: sync.OnceFunc(func() { release(); leave(); l.open.Done() })}, nil
}

func (l *peerListener) seat(p Peer) (leave func(), err error) {
	role := l.roles.Of(p)
	if role == wire.Nobody {
		return nil, notAuthorised(p, wire.Viewer, "use the control socket")
	}
	leave, full := l.seats.take(p, role)
	if full != nil {
		return nil, full
	}
	return leave, nil
}

// refuse answers a connection whose request is not read, and closes it.
func refuse(c net.Conn, e *Error) {
	text, err := json.Marshal(e)
	if err == nil && c.SetWriteDeadline(time.Now().Add(refuseTime)) == nil {
		answer := http.Response{StatusCode: e.Status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)), Close: true}
		_ = answer.Write(c) // the caller may have gone
	}
	_ = c.Close() // nothing was read or promised
}

type peerConn struct {
	net.Conn
	peer    Peer
	release func()
}

// Close gives the seat back.
func (c *peerConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// CodeTooManyConnections answers a connection for which no seat is left.
const CodeTooManyConnections = "TooManyConnections"

// seatsFor bounds the connections that may be open when one more of a role is let in: all of them,
// of whatever role, and those of the user alone. So viewers leave seats to operators, and both leave
// some to admins, root among them: whoever may only look keeps nobody from pausing the daemon.
var seatsFor = [...]struct{ all, each int }{wire.Viewer: {64, 16}, wire.Operator: {96, 16}, wire.Admin: {160, 64}}

// seats counts the open connections.
type seats struct {
	mu  sync.Mutex
	all int
	of  map[seatOwner]int
}

type seatOwner struct {
	uid  uint32
	role wire.Role
}

// take gives a connection of a role its seat, until leave is called once.
func (s *seats) take(p Peer, role wire.Role) (leave func(), err *Error) {
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
func (l looks) begin(ctx context.Context, role wire.Role) (done func(), err error) {
	if role > wire.Viewer {
		return func() {}, nil
	}
	select { // a free place is taken also while the daemon stops: who was let in is answered
	case l <- struct{}{}:
		return func() { <-l }, nil
	default:
	}
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
