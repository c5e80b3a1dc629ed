package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/fenced/fenced/internal/wire"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/login"
)

// Roles says who has which role: entries are user:NAME or group:NAME, or have a number for the name. An
// entry of any other form gives nobody anything.
type Roles struct {
	Viewer   []string
	Operator []string
	Admin    []string
}

// Of gives the highest role of a caller. Root and the daemon's own user are
// admin: they could replace the daemon anyway.
func (r Roles) Of(p Peer) wire.Role {
	switch {
	case isSharedAccount(p.UID), matchesAny(r.Admin, p):
		return wire.Admin
	case matchesAny(r.Operator, p):
		return wire.Operator
	case matchesAny(r.Viewer, p):
		return wire.Viewer
	}
	return wire.Nobody
}

func matchesAny(entries []string, p Peer) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		kind, name, _ := strings.Cut(entry, ":")
		switch {
		case name == "":
			return false
		case kind == "user":
			return name == p.User || name == strconv.FormatUint(uint64(p.UID), 10)
		case kind == "group":
			return slices.Contains(p.Groups, name)
		}
		return false
	})
}

// Peer is the user at the other end of the socket, as the kernel says.
type Peer struct {
	UID    uint32
	User   string   // "" when the user has no name here
	Groups []string // primary and supplementary, by name and by number
	// Login is who logged in and became this user, by sudo perhaps; nil where this kernel
	// keeps no logins, or with NoLogin. It gives no role.
	Login *Login
	// NoLogin is why nobody is known to have logged in, where this kernel keeps logins.
	NoLogin error
	// login looks both up, for named; nil when they are what they are.
	login func() (*Login, error)
}

// Actor is how the peer is named in records and logs.
func (p Peer) Actor() string {
	name := account(p.UID, p.User)
	if p.Login == nil || p.Login.UID == p.UID {
		return name
	}
	return account(p.Login.UID, p.Login.User) + " as " + name
}

func account(uid uint32, name string) string {
	if name == "" {
		return fmt.Sprintf("uid %d", uid)
	}
	return fmt.Sprintf("%s (uid %d)", name, uid)
}

// persons gives the uids that identify the person behind an order. Two orders come from
// two persons if they have no uid in common, so sudo and su do not make a second person.
// uid 0 and the daemon's user identify nobody, because several people may use them; if
// no other uid is left, why says so.
func (p Peer) persons() (uids []uint32, why string) {
	switch {
	case p.NoLogin != nil:
		return nil, p.NoLogin.Error()
	case p.Login == nil && isSharedAccount(p.UID):
		return nil, account(p.UID, p.User) + " without a login does not identify a person"
	case p.User == "" && !isSharedAccount(p.UID): // whatever its login is: a process without one may choose it
		return nil, account(p.UID, p.User) + " has no name here, and one user may have many such uids (/etc/subuid)"
	case p.Login == nil:
		return []uint32{p.UID}, ""
	case isSharedAccount(p.Login.UID):
		return nil, "several people may log in as " + account(p.Login.UID, p.Login.User)
	case isSharedAccount(p.UID):
		return []uint32{p.Login.UID}, ""
	}
	return []uint32{p.Login.UID, p.UID}, ""
}

// isSharedAccount says whether a uid identifies no person: root and the daemon's user.
func isSharedAccount(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

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

// userName returns the name of a user, or an empty string if the user has none here.
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
	p.Groups = slices.Clone(gids)
	for _, id := range gids {
		if g, err := user.LookupGroupId(id); err == nil {
			p.Groups = append(p.Groups, g.Name)
		}
	}
	return p
}

// Login is the user who logged in at the beginning of a session. sudo and su change
// who a process is and leave this as it is.
type Login struct {
	UID  uint32
	User string // "" when the user has no name here
}

// named is the peer with the login of the process that connected. That is looked up for
// orders and refusals alone, which name it: in the sandbox of the daemon's unit another
// program has to be asked for it, which may take seconds, and no more than that.
func (p Peer) named() Peer {
	if p.login != nil {
		p.Login, p.NoLogin = p.login()
	}
	return p
}

// errNoLogin is that the kernel keeps login uids and the process has none: whoever can start a service of
// a user would else be that user.
var errNoLogin = errors.New("its process belongs to no login, as that of a service")

// loginOf gives the login of a process: nil where this kernel keeps none. A process that belongs to
// none is an error, and so is one that cannot be looked at, for its login may be anybody's.
func loginOf(p *login.Process, helper string) (*Login, error) {
	uid, ok, err := p.UID()
	if errors.Is(err, login.ErrHidden) {
		uid, ok, err = p.Ask(helper)
	}
	switch {
	case errors.Is(err, login.ErrNotKept):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the login uid of its process: %w", err)
	case !ok:
		return nil, errNoLogin
	}
	return &Login{UID: uid, User: userName(uid)}, nil
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
