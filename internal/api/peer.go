package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os/user"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/login"
)

// refuseTime bounds how long a refusal takes; the kernel has room for it in a new connection.
const refuseTime = 100 * time.Millisecond

// peerOf asks the kernel who connected. The uid and gid are those of that moment, and name
// tells their names; who logged in is looked up by named, of that process. release lets go
// of it.
func peerOf(c *net.UnixConn, name func(uid, gid uint32) Peer, helper string) (p Peer, release func(), err error) {
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
		p = name(cred.Uid, cred.Gid)
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

// peerListener lets in whoever has a role and a seat. Anybody else is refused before anything is
// read, and nothing of them stays open.
type peerListener struct {
	net.Listener
	roles    Roles
	refusals *refusalLog
	helper   string // the socket of fenced-login
	names    names
	seats    seats
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
	return &peerConn{Conn: c, peer: p, release: sync.OnceFunc(func() { release(); leave() })}, nil
}

func (l *peerListener) seat(p Peer) (leave func(), err error) {
	role := l.roles.Of(p)
	if role == Nobody {
		return nil, notAuthorised(p, Viewer, "use the control socket")
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
