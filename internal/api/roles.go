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
	case p.UID == 0, int(p.UID) == os.Geteuid(), named(r.Admin, p):
		return Admin
	case named(r.Operator, p):
		return Operator
	case named(r.Viewer, p):
		return Viewer
	}
	return Nobody
}

func named(entries []string, p Peer) bool {
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
}

// Actor is how the peer is named in records and logs.
func (p Peer) Actor() string {
	if p.User == "" {
		return fmt.Sprintf("uid %d", p.UID)
	}
	return fmt.Sprintf("%s (uid %d)", p.User, p.UID)
}
