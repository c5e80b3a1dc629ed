package api

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Role is how far a caller is trusted; a higher one includes the lower.
type Role uint8

// The roles.
const (
	Nobody Role = iota
	Viewer
	Operator
	Admin
)

// String gives the word of the configuration.
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	case Admin:
		return "admin"
	}
	return "nobody"
}

// Roles says who has which role: entries are user:NAME or group:NAME. An
// entry of any other form gives nobody anything.
type Roles struct {
	Viewer   []string
	Operator []string
	Admin    []string
}

// Of gives the highest role of a caller. Root and the daemon's own user are
// admin: they could replace the daemon anyway.
func (r Roles) Of(p Peer) Role {
	switch {
	case isSharedAccount(p.UID), matchesAny(r.Admin, p):
		return Admin
	case matchesAny(r.Operator, p):
		return Operator
	case matchesAny(r.Viewer, p):
		return Viewer
	}
	return Nobody
}

func matchesAny(entries []string, p Peer) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		kind, name, _ := strings.Cut(entry, ":")
		switch {
		case name == "":
			return false
		case kind == "user":
			return name == p.User
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
	Groups []string // primary and supplementary
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
