package main

import (
	"cmp"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/config"
)

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
