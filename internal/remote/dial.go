package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Leg is the part of the way to fenced that failed.
type Leg int

// The legs, in the order of the way.
const (
	SSH     Leg = iota // ssh is not installed here, or could not log in
	Missing            // the login has no fencectl
	TooOld             // fencectl there does not know dial-stdio
	Program            // something else ran, or fencectl there failed
	Rights             // the login may not connect to the socket
	Socket             // nobody answers on the socket
)

// Error is a connection that could not be made, or broke.
type Error struct {
	Leg  Leg
	Host Host
	Text string // what ssh, or the program there, said; bounded, and written by others
}

func (e *Error) Error() string {
	what := map[Leg]string{
		SSH: "ssh to %s failed", Missing: "fencectl is not installed on the host, or not in the PATH of %s", TooOld: "fencectl on the host of %s is too old for --host",
		Program: "the login of %s did not run fencectl", Rights: "%s may not connect to the socket of fenced there", Socket: "logged in as %s, but fenced does not answer there",
	}[e.Leg]
	text := fmt.Sprintf(what, e.Host)
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// Temporary says whether the same attempt may succeed later without a change of the set-up: fenced restarts, the network comes back.
func (e *Error) Temporary() bool { return e.Leg == SSH || e.Leg == Socket }

// The exit statuses by which the program there tells what failed: those of fencectl, of ssh and of a shell.
const (
	exitRights      = 4
	exitUnreachable = 5
	exitUsage       = 64
	exitCannotRun   = 126
	exitNoProgram   = 127
	exitSSH         = 255
)

// legOf returns which leg an exit status is about.
func legOf(status int) Leg {
	switch status {
	case exitRights:
		return Rights
	case exitUnreachable:
		return Socket
	case exitUsage:
		return TooOld
	case exitCannotRun, exitNoProgram:
		return Missing
	case exitSSH, -1: // -1: a signal ended ssh
		return SSH
	}
	return Program
}

// Greeting is the line by which dial-stdio says that it is connected to the socket.
const Greeting = "fenced-dial-stdio 1"

const (
	// maxNoise bounds what the files of a login may print before the greeting, in bytes.
	maxNoise = 64 << 10
	// maxSaid bounds what is kept of the stderr of ssh, in bytes; it is the end of it.
	maxSaid = 4 << 10
	// endTime is how long an ssh that nobody needs any more may take to end, before it is ended.
	endTime = 2 * time.Second
	// loginTime is how long a login may take that waits for no person. ssh itself bounds less: not what the files of a login do.
	loginTime = 2 * time.Minute
)

// Dialer makes connections to the fenced of one host.
type Dialer struct {
	Host   Host
	Socket string // on that host, see CheckSocket; empty: what fencectl takes there
	// Quiet: ssh asks nobody for a password, a passphrase or the key of the host.
	Quiet bool

	patience time.Duration // loginTime, if not 0

	login sync.Mutex // one login at a time, so that no two ask one person

	mu    sync.Mutex
	open  map[*conn]bool
	ended bool
}

// Dial logs in, and returns the connection to the socket there. Errors are *Error, or ctx's. The connection outlives ctx.
func (d *Dialer) Dial(ctx context.Context) (net.Conn, error) {
	d.login.Lock()
	defer d.login.Unlock()
	return d.dial(ctx, d.Quiet)
}

// DialQuietly is Dial that asks nobody, and waits for no other login.
func (d *Dialer) DialQuietly(ctx context.Context) (net.Conn, error) { return d.dial(ctx, true) }

func (d *Dialer) dial(ctx context.Context, quiet bool) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var late <-chan time.Time
	patience := cmp.Or(d.patience, loginTime)
	if quiet {
		late = time.After(patience)
	}
	c, err := d.start(quiet)
	if err != nil {
		return nil, err
	}
	greeted := make(chan error, 1)
	go func() { greeted <- c.awaitGreeting() }()
	select {
	case err = <-greeted:
	case <-ctx.Done():
		err = ctx.Err()
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	case <-late:
		err = &Error{Leg: SSH, Host: d.Host, Text: fmt.Sprintf("the login has not reached fencectl within %s", patience)}
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	if err != nil {
		_ = c.Close() // why it failed is known
		return nil, err
	}
	return c, nil
}

// start starts ssh on one end of a pair of sockets.
func (d *Dialer) start(quiet bool) (*conn, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a connection for ssh: %w", err)
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), "ssh"), os.NewFile(uintptr(fds[1]), "ssh")
	defer theirs.Close()
	defer ours.Close()
	local, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("make a connection for ssh: %w", err)
	}
	c := &conn{Conn: local, dialer: d, done: make(chan struct{}), cmd: exec.Command("ssh", d.Host.arguments(d.Socket, quiet)...)}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs, theirs, &c.said
	c.cmd.WaitDelay = time.Second // a shared connection of the user's configuration may keep stderr open
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil, errors.Join(net.ErrClosed, local.Close())
	}
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(&Error{Leg: SSH, Host: d.Host, Text: "start the program ssh of this host: " + err.Error()}, local.Close())
	}
	if d.open == nil {
		d.open = map[*conn]bool{}
	}
	d.open[c] = true
	go func() {
		_ = c.cmd.Wait() // ProcessState has its exit status
		d.mu.Lock()
		delete(d.open, c)
		d.mu.Unlock()
		close(c.done)
	}()
	return c, nil
}

// End ends every connection and waits until no ssh process is left. Nothing can be dialled afterwards.
func (d *Dialer) End() {
	d.mu.Lock()
	d.ended = true
	var open []*conn
	for c := range d.open {
		open = append(open, c)
	}
	d.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // its process is what counts
	}
	for _, c := range open {
		<-c.done
	}
}

// conn is a connection with the ssh process that carries it.
type conn struct {
	net.Conn
	dialer *Dialer
	cmd    *exec.Cmd
	said   tail
	done   chan struct{} // closed when ssh has ended
	end    sync.Once
}

// awaitGreeting reads what comes before the first byte of fenced.
func (c *conn) awaitGreeting() error {
	var line, last []byte
	one := make([]byte, 1) // byte by byte: what follows is fenced's
	for range maxNoise {
		if _, err := c.Conn.Read(one); err != nil {
			return c.broken(string(bytes.TrimSpace(append(last, line...))))
		}
		if one[0] != '\n' {
			line = append(line, one[0])
			continue
		}
		if strings.TrimSuffix(string(line), "\r") == Greeting {
			return nil
		}
		last, line = append(line, ' '), nil
	}
	return &Error{Leg: Program, Host: c.dialer.Host, Text: "it printed more than 64 KiB of something else"}
}

// Read reads what fenced answers; if ssh broke, its error says why.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		select {
		case <-c.done:
			if c.cmd.ProcessState.ExitCode() != 0 {
				return n, c.broken("")
			}
		case <-time.After(endTime):
		}
	}
	return n, err
}

// broken returns why ssh ended. printed is what the login printed last.
func (c *conn) broken(printed string) error {
	select {
	case <-c.done:
	case <-time.After(endTime): // it closed its streams, and stays
		_ = c.cmd.Process.Kill()
		<-c.done
	}
	e := &Error{Leg: legOf(c.cmd.ProcessState.ExitCode()), Host: c.dialer.Host, Text: c.said.lastLines()}
	if e.Text == "" {
		e.Text = clip(printed)
	}
	if e.Leg == Program {
		e.Text = strings.TrimSuffix(fmt.Sprintf("exit status %d: %s", max(0, c.cmd.ProcessState.ExitCode()), e.Text), ": ")
	}
	return e
}

// Close ends the connection. ssh ends with it, at the latest after twice endTime.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.end.Do(func() {
		go func() {
			for _, s := range []os.Signal{syscall.SIGTERM, os.Kill} {
				select {
				case <-c.done:
					return
				case <-time.After(endTime):
					_ = c.cmd.Process.Signal(s) // it may have ended
				}
			}
		}()
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

// Write takes all of b.
func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-maxSaid):]
	return len(b), nil
}

// lastLines returns the last lines that say something, as one: ssh explains itself before its last line.
func (t *tail) lastLines() string {
	var said []string
	for line := range bytes.Lines(t.text) {
		if text := strings.Trim(string(line), "@ \t\r\n"); text != "" {
			said = append(said, text)
		}
	}
	return clip(strings.Join(said[max(0, len(said)-2):], "; "))
}

// clip bounds a text that others wrote.
func clip(text string) string {
	const limit = 500
	if len(text) > limit {
		text = "..." + text[len(text)-limit:]
	}
	return strings.ToValidUTF8(text, "?")
}

// Join is the other end of a connection, on the host of fenced: it greets, and carries what comes in to conn and what conn answers
// out, until one of the two ends. It closes conn, and does not wait for a reading of in. Its error says that nobody was greeted.
func Join(conn net.Conn, in io.Reader, out io.Writer) error {
	defer conn.Close()
	if _, err := fmt.Fprintln(out, Greeting); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	go func() {
		// If fenced takes no more, it may have answered: that is read to its end.
		if _, err := io.Copy(conn, in); err == nil {
			_ = conn.Close()
		}
	}()
	_, _ = io.Copy(out, conn) // whichever side broke it, the connection is over
	return nil
}
