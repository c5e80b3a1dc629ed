package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/remote"
)

// connection is the one client that a command has, with its logins if fenced is on another host.
type connection struct {
	quiet  bool // nobody is there whom ssh may ask
	once   sync.Once
	api    *api.Client
	dialer *remote.Dialer
}

// client gives the client of the fenced on this host, or on that of --host. It connects with its first request, and over ssh keeps
// its connections: each is a login.
func (c *cli) client() *api.Client {
	c.once.Do(func() {
		if c.host == "" {
			c.api = api.New(c.socket)
			return
		}
		host, err := remote.Parse(c.host)
		c.dialer = &remote.Dialer{Host: host, Socket: c.remoteSocket(), Quiet: c.quiet || !isTerminal(c.in)}
		dial, quietly := c.dialer.Dial, c.dialer.DialQuietly
		if err != nil { // only a completion comes here with one that is wrong
			dial = func(context.Context) (net.Conn, error) { return nil, err }
			quietly = dial
		}
		c.api = api.NewOver(cmp.Or(c.remoteSocket(), "its socket")+" of "+host.String(), dial, quietly)
	})
	return c.api
}

// remoteSocket is the socket that was named; empty leaves it to fencectl on the other host.
func (c *cli) remoteSocket() string {
	if c.socket == api.DefaultSocket {
		return ""
	}
	return c.socket
}

// end ends the connections, and every ssh process with them.
func (c *cli) end() {
	if c.dialer != nil {
		c.api.End()
		c.dialer.End()
	}
}

// hereOnly are the verbs that read or write files of the host on which they run, and those that need no daemon. With --host the first
// would show this host's files as those of the other.
var (
	hereOnly = map[string]string{
		"audit": "reads the log of the host on which it runs", "init": "writes the configuration of the host on which it runs",
		"import": "writes the state of the host on which it runs", "support-bundle": "collects files of the host on which it runs",
	}
	noDaemon = []string{"simulate", "version", "completion", "help", "dial-stdio"}
)

// checkHost refuses a --host that is none, or that the verb cannot obey.
func (c *cli) checkHost(cmd *cobra.Command) error {
	words := append(strings.Fields(cmd.CommandPath()), "")
	if c.host == "" || slices.Contains(noDaemon, words[1]) {
		return nil
	}
	host, err := remote.Parse(c.host)
	if err != nil {
		shown := c.host
		if u, err := url.Parse(shown); err == nil {
			shown = u.Redacted() // somebody may have written a password
		}
		return usageError(fmt.Errorf("--host, or FENCECTL_HOST, is %q: %w", shown, err), "--host ssh://anna@bastion")
	}
	if socket := c.remoteSocket(); socket != "" {
		if err := remote.CheckSocket(socket); err != nil {
			return usageError(fmt.Errorf("--socket, or FENCED_SOCKET: %w", err))
		}
	}
	why := hereOnly[words[1]]
	if words[1] == "check-config" && slices.ContainsFunc([]string{"offline", "config", "set"}, cmd.Flags().Changed) {
		why = "checks the files of the host on which it runs"
	}
	if why == "" {
		return nil
	}
	verb := strings.Join(words[1:len(words)-1], " ")
	return usageError(fmt.Errorf("%s %s, and --host, or FENCECTL_HOST, names another", verb, why),
		"there: "+host.Command()+" fencectl "+verb, `here: fencectl --host "" `+verb)
}

// remoteError returns the exit status and the next step for the leg that failed on the way to another host.
func remoteError(what string, e *remote.Error) *exitError {
	exit := &exitError{code: exitUnreachable, err: fmt.Errorf("%s: %w", what, e)}
	login := e.Host.Command()
	switch e.Leg {
	case remote.SSH:
		exit.hint = []string{"it is ssh that failed: try " + login + " true"}
	case remote.Missing:
		exit.hint = []string{"install the package of fenced on that host: " + login + " fencectl version shows whether it is found"}
	case remote.TooOld:
		exit.hint = []string{"upgrade fenced on that host: " + login + " fencectl version"}
	case remote.Program:
		exit.hint = []string{"see what the login does: " + login + " fencectl version"}
	case remote.Rights:
		exit.code = exitNotAuthorised
		exit.hint = []string{"the socket admits root and the members of its group; on that host: usermod -aG fenced-view " + cmp.Or(e.Host.User, "USER") + ", then log in anew"}
	case remote.Socket:
		exit.hint = []string{"is it running? " + login + " systemctl status fenced", "another socket of that host is named with --socket"}
	}
	return exit
}

// there says of the hints of an error on which host their commands are to be run, if fenced is on another one and does not answer.
func (c *cli) there(err error) error {
	exit, ok := errors.AsType[*exitError](err)
	if _, told := errors.AsType[*remote.Error](err); !ok || told || c.dialer == nil || exit.code != exitUnreachable {
		return err
	}
	for i := range exit.hint {
		exit.hint[i] = "on " + c.dialer.Host.String() + ": " + exit.hint[i]
	}
	return exit
}

func newDialStdioCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:    "dial-stdio",
		Short:  "join stdin and stdout to the control socket, for --host of another fencectl",
		Hidden: true,
		Long: `Join stdin and stdout to the control socket of this host. fencectl --host runs this
over ssh. It gives nobody a right: fenced sees the user who runs it.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.dialStdio(cmd.Context()) },
	}
}

// dialStdio connects stdin and stdout to the socket. Its exit statuses are those that package remote reads.
func (c *cli) dialStdio(ctx context.Context) error {
	conn, err := api.Dial(ctx, c.socket)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &exitError{code: exitNotAuthorised, err: fmt.Errorf("connect to %s: %w", c.socket, syscall.EACCES)}
	case err != nil:
		return &exitError{code: exitUnreachable, err: fmt.Errorf("connect to %s: %w", c.socket, causeOf(err))}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := remote.Join(conn, c.in, c.out); err != nil {
		return &exitError{code: exitFailure, err: err}
	}
	return nil
}

// causeOf is what the kernel said of a connection, without the address that the message names already.
func causeOf(err error) error {
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		return e.Err
	}
	return err
}
