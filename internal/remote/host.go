// Package remote reaches the fenced of another host over the system's ssh, as the person who logs in there: each
// connection is one ssh process, which runs `fencectl dial-stdio` on that host, and that joins its streams to the
// control socket. So no port is open and no daemon more, and the kernel there tells fenced whose login it is.
package remote

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Host is where ssh logs in.
type Host struct {
	// User is empty where the configuration of ssh names one.
	User string
	Name string
	// Port is 0 where the configuration of ssh names one.
	Port uint16
}

// What may stand on the command line of ssh, and in the commands that its configuration makes of it. None begins with "-":
// that would be an option. They are compiled for the first address: most commands go to no other host.
var (
	userSyntax = syntax(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$`)
	nameSyntax = syntax(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)
	ipv6Syntax = syntax(`^[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9._-]{1,32})?$`)
	// What every shell takes as it is.
	pathSyntax = syntax(`^/[A-Za-z0-9._/@:+,=-]{1,107}$`)
)

func syntax(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// Parse reads ssh://[USER@]HOST[:PORT]. HOST may be a name of ~/.ssh/config. Its errors say what is wrong with the text.
func Parse(text string) (Host, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Host{}, errors.New("it is no address like ssh://USER@HOST")
	}
	h := Host{User: u.User.Username(), Name: u.Hostname()}
	_, secret := u.User.Password()
	switch {
	case u.Scheme != "ssh":
		return Host{}, errors.New("it must begin with ssh://")
	case secret:
		return Host{}, errors.New("it may hold no password: ssh asks for it, or uses a key")
	case u.Opaque != "" || u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#"):
		return Host{}, errors.New("nothing may follow the host and its port; --socket names the socket")
	case h.User == "" && u.User != nil, h.User != "" && !userSyntax().MatchString(h.User):
		return Host{}, fmt.Errorf("%q is not the name of a user", h.User)
	case !nameSyntax().MatchString(h.Name) && !(strings.Contains(h.Name, ":") && ipv6Syntax().MatchString(h.Name)):
		return Host{}, fmt.Errorf("%q is not the name of a host", h.Name)
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return Host{}, fmt.Errorf("%q is not a port", port)
		}
		h.Port = uint16(n)
	}
	return h, nil
}

// CheckSocket refuses a path of a socket that no shell would take as it is.
func CheckSocket(path string) error {
	if !pathSyntax().MatchString(path) {
		return fmt.Errorf("%q is not the path of a socket on another host: it begins with / and has letters, digits and ._/@:+,=- only", path)
	}
	return nil
}

// String is USER@HOST, as people name a login.
func (h Host) String() string {
	if h.User == "" {
		return h.Name
	}
	return h.User + "@" + h.Name
}

// Command is the beginning of a command line that does something on the host.
func (h Host) Command() string {
	words := []string{"ssh"}
	if h.Port != 0 {
		words = append(words, "-p", strconv.Itoa(int(h.Port)))
	}
	return strings.Join(append(words, h.String()), " ")
}

// arguments are those of ssh. socket is that of fenced there; the empty string leaves it to fencectl there.
func (h Host) arguments(socket string, quiet bool) []string {
	args := []string{
		"-T", "-a", "-x", // no terminal; and the host gets neither the agent nor the screen
		"-o", "ConnectTimeout=30",
		"-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", // a connection that broke is noticed
		"-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", // those of the configuration are for people
	}
	if quiet {
		args = append(args, "-o", "BatchMode=yes")
	}
	if h.Port != 0 {
		args = append(args, "-p", strconv.Itoa(int(h.Port)))
	}
	if h.User != "" {
		args = append(args, "-l", h.User)
	}
	command := "fencectl dial-stdio"
	if socket != "" {
		command += " --socket '" + socket + "'"
	}
	return append(args, "--", h.Name, command)
}
