package api

import (
	"errors"
	"fmt"

	"github.com/fenced/fenced/internal/login"
)

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
