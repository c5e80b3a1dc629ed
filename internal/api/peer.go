package api

import (
	"context"
	"fmt"
	"math"
	"net"
	"os/user"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/login"
)

// maxConnsPerUser bounds what one user can hold open, so that nobody can keep
// root from pausing the daemon.
const maxConnsPerUser = 64

// peerOf asks the kernel who connected. The uid and gid are those of that moment; who
// logged in is looked up by named, of that process. release lets go of it.
func peerOf(c *net.UnixConn, helper string) (p Peer, release func(), err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, nil, fmt.Errorf("read the peer's credentials: %w", err)
	}
	release = func() {}
	var optErr error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); optErr != nil {
			return
		}
		p = namePeer(cred.Uid, cred.Gid)
		process, lost := login.Connected(int(fd), cred.Pid)
		if lost != nil {
			p.NoLogin = fmt.Errorf("read the login uid of its process: %w", lost)
			return
		}
		p.login = func() (*Login, error) { return loginOf(process, helper) }
		release = func() { _ = process.Close() } // it was only read
	})
	if err == nil {
		err = optErr
	}
	if err != nil {
		return Peer{}, nil, fmt.Errorf("read the peer's credentials: %w", err)
	}
	return p, release, nil
}

// userName is "" for a user without a name here.
func userName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

// namePeer resolves names. What does not resolve stays unnamed and so has no
// role by that name.
func namePeer(uid, gid uint32) Peer {
	p := Peer{UID: uid}
	gids := []string{strconv.FormatUint(uint64(gid), 10)}
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		p.User = u.Username
		if more, err := u.GroupIds(); err == nil {
			gids = append(gids, more...)
		}
	}
	for _, id := range gids {
		if g, err := user.LookupGroupId(id); err == nil {
			p.Groups = append(p.Groups, g.Name)
		}
	}
	return p
}

// peerListener knows the peer of every connection it accepts and bounds how
// many one user holds.
type peerListener struct {
	net.Listener
	refuse func(format string, args ...any)
	helper string // the socket of fenced-login

	mu   sync.Mutex
	open map[uint32]int // by uid
}

// Accept waits for a connection with a known peer.
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
		l.refuse("control socket: %v", err)
		_ = c.Close() // nothing was read or promised
	}
}

func (l *peerListener) admit(c net.Conn) (*peerConn, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("a connection over %s has no peer credentials", c.LocalAddr().Network())
	}
	p, release, err := peerOf(uc, l.helper)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[p.UID] >= maxConnsPerUser {
		release()
		return nil, fmt.Errorf("%s holds %d connections already", p.Actor(), maxConnsPerUser)
	}
	l.open[p.UID]++
	return &peerConn{Conn: c, peer: p, release: sync.OnceFunc(func() { release(); l.release(p.UID) })}, nil
}

func (l *peerListener) release(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[uid]--; l.open[uid] == 0 {
		delete(l.open, uid)
	}
}

type peerConn struct {
	net.Conn
	peer    Peer
	release func()
}

// Close gives the user's place back.
func (c *peerConn) Close() error {
	c.release()
	return c.Conn.Close()
}

type peerKey struct{}

func withPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// peerFrom gives the request's peer; a request without one is nobody's.
func peerFrom(ctx context.Context) Peer {
	if p, ok := ctx.Value(peerKey{}).(Peer); ok {
		return p
	}
	return Peer{UID: math.MaxUint32} // the kernel's "no user"
}
