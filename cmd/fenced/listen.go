package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/wire"
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

func (d *fenced) listen() (err error) {
	c := d.cfg.Control
	if d.control, err = openControl(c, d.log); err == nil {
		giveSocket(c.Socket, c.Group, d.log)
	}
	return err
}

// twoPersons are the verbs that two users must order.
func twoPersons(c config.Config) []wire.Verb {
	var verbs []wire.Verb
	for _, word := range c.Control.TwoPersons {
		verbs = append(verbs, wire.VerbNamed(strings.Replace(word, "bmc-", "bmc/", 1)))
	}
	return verbs
}

// giveSocket gives the control socket its group. If that fails, only root may use the socket, and
// fencing goes on.
func giveSocket(path, group string, log *zap.Logger) {
	if group != "" {
		if err := api.SetGroup(path, group); err != nil {
			log.Warn("only root may use the control socket; systemd-sysusers makes its group, and the unit gives it", zap.Error(err))
		}
	}
	own := os.Getegid()
	others := othersIn(os.DirFS("/etc"), strconv.Itoa(own))
	if len(others) == 0 || own == 0 {
		return
	}
	name := strconv.Itoa(own)
	if g, err := user.LookupGroupId(name); err == nil {
		name = g.Name
	}
	view := cmp.Or(group, config.ViewGroup)
	log.Warn("people are in the daemon's own group, which reads the passwords of all BMCs; for each: usermod -aG "+view+" USER && gpasswd -d USER "+
		name+"; and in control.roles write group:"+view+" in place of group:"+name, zap.Strings("members", others))
}

// othersIn lists the users of a group, from /etc/group and /etc/passwd, without root and without
// the user who has the name of the group.
func othersIn(etc fs.FS, gid string) (others []string) {
	name := ""
	for line := range lines(etc, "group") {
		if len(line) > 3 && line[2] == gid {
			name = line[0]
			others = strings.Split(line[3], ",")
		}
	}
	for line := range lines(etc, "passwd") {
		if len(line) > 3 && line[3] == gid {
			others = append(others, line[0])
		}
	}
	slices.Sort(others)
	return slices.DeleteFunc(slices.Compact(others), func(u string) bool { return u == "" || u == "root" || u == name })
}

// lines yields the fields of each line of a file in /etc; nothing if it cannot be read.
func lines(etc fs.FS, file string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		text, _ := fs.ReadFile(etc, file) // after an error it is empty
		for line := range strings.Lines(string(text)) {
			if !yield(strings.Split(strings.TrimSpace(line), ":")) {
				return
			}
		}
	}
}
