package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/config"
)

// socketName is FileDescriptorName= of fenced.socket.
const socketName = "control"

// openControl takes the control socket that systemd passes, or makes one. The passed one
// stays when the daemon ends: its owner, mode and end are those of fenced.socket.
func openControl(c config.Control, log *zap.Logger) (net.Listener, error) {
	all, err := activation.ListenersWithNames() // takes the variables out of the environment, too
	if err != nil {
		return nil, fmt.Errorf("take the sockets that systemd passes: %w", err)
	}
	passed, err := passedSocket(all)
	if err != nil {
		return nil, configError{err}
	}
	if passed == nil {
		return api.Listen(c.Socket)
	}
	if path := passed.Addr().String(); path != c.Socket {
		log.Warn("systemd passes another control socket than control.socket of fenced.yaml, and that one is used; make ListenStream= of fenced.socket the same",
			zap.String("passed", path), zap.String("configured", c.Socket))
	}
	return passed, nil
}

// passedSocket picks the control socket out of what systemd passes; nil without one. Any other
// socket is an error: nothing would answer there.
func passedSocket(all map[string][]net.Listener) (*net.UnixListener, error) {
	for name, ls := range all {
		if name != socketName || len(ls) != 1 {
			return nil, fmt.Errorf("systemd passes %d sockets named %q, but fenced takes one named %q; look into fenced.socket and its drop-ins", len(ls), name, socketName)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	ln, ok := all[socketName][0].(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("systemd passes a socket of %s, but the control socket is a path; make ListenStream= of fenced.socket a path", all[socketName][0].Addr().Network())
	}
	return ln, nil
}

// listen opens the control socket.
func (d *fenced) listen() (err error) {
	c := d.cfg.Control
	if d.control, err = openControl(c, d.log); err == nil {
		giveSocket(c.Socket, c.Group, d.log)
	}
	return err
}

// twoPersons are the verbs that two users must order.
func twoPersons(c config.Config) []api.Verb {
	var verbs []api.Verb
	for _, word := range c.Control.TwoPersons {
		verbs = append(verbs, api.Verb(strings.Replace(word, "bmc-", "bmc/", 1)))
	}
	return verbs
}

// apiRoles are the groups of the three roles.
func apiRoles(c config.Config) api.Roles {
	r := c.Control.Roles
	return api.Roles{Viewer: r.Viewer, Operator: r.Operator, Admin: r.Admin}
}
