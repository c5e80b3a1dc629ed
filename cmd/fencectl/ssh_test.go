package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/remote"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/asroot"
	got "github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// inSSHWorld is set in the namespace of testdata/sshworld.sh.
const inSSHWorld = "FENCED_TEST_SSH_WORLD"

// TestHost talks to a daemon over a real sshd, with the logins of users of its own: each sees what its role lets it see, and each leg that
// fails is named. It runs itself in a mount namespace, where these users are.
func TestHost(t *testing.T) {
	if os.Getenv(inSSHWorld) == "" {
		t.Parallel() // it waits for logins most of the time
		asroot.CanLogIn(t)
		asroot.Can(t, "find sshd (make deps installs openssh-server and openssh-client)", "sh", "-c", "command -v sshd && command -v ssh && command -v ssh-keygen && command -v script")
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", got.Do(filepath.Abs("testdata/sshworld.sh"))(t),
			got.Do(os.Executable())(t), got.Do(os.Executable())(t), "-test.run", "^TestHost$", "-test.v")
		cmd.Env = append(os.Environ(), inSSHWorld+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestHost/", "%s", out)
		t.Logf("%s", out)
		return
	}
	w := newSSHWorld(t)
	for _, tc := range []struct {
		name string
		test func(*testing.T, *sshWorld)
	}{
		{"roles", testHostRoles}, {"two persons", testHostTwoPersons}, {"few logins", testHostFewLogins}, {"login that prints", testHostNoise},
		{"restricted key", testHostRestrictedKey}, {"ssh fails", testHostSSHFails}, {"fencectl fails there", testHostProgramFails},
		{"socket fails there", testHostSocketFails}, {"no ssh is left", testHostLeavesNothing}, {"events go on", testHostEventsGoOn}, {"a person is asked", testHostAsks}, {"shared login", testHostSharedLogin}, {"page", testHostPage}, {"completion", testHostCompletes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if w.stop == nil {
				w.serve(t)
			}
			tc.test(t, w)
		})
	}
	if w.stop != nil {
		require.NoError(t, w.stop())
	}
}

// sshWorld is a daemon with a scripted answer, and an sshd on loopback.
type sshWorld struct {
	address string
	logins  atomic.Int64
	daemon  *actors
	stop    func() error // ends the daemon; nil while it is down
}

// actors is a scripted daemon that keeps who gave an order.
type actors struct {
	scripted
	given []string
}

// Do keeps the order as the audit log has it.
func (d *actors) Do(_ context.Context, o wire.Order) (wire.OrderResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !o.DryRun {
		d.given = append(d.given, fmt.Sprintf("%s %s%s by %s", o.Verb, o.Node, o.Run, o.Actor))
	}
	return d.Result, nil
}

// orders are those that were given since the last call.
func (d *actors) orders() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.given = nil }()
	return d.given
}

// Refused is of no interest here.
func (d *actors) Refused(wire.Order, *api.Error) {}

func newSSHWorld(t *testing.T) *sshWorld {
	w := &sshWorld{daemon: &actors{}}
	require.NoError(t, json.Unmarshal([]byte(`{"status": {"version": "0.1.0", "armed": true}, "names": {"nodes": ["n-1", "n-2"]},
		"nodes": {"nodes": [{"cluster": "prod", "node": "n-1", "state": "Healthy", "checks": [], "bmcs": []}]},
		"result": {"message": "carried out", "run": "r-1"},
		"history": [{"id": "r-1", "node": "n-1", "result": "Running"}],
		"frames": [{"id": "r-1", "node": "n-1", "result": "Running"}, {"id": "r-1", "node": "n-1", "result": "Running"}, {"id": "r-1", "node": "n-1", "result": "Done"}]}`), w.daemon))
	w.daemon.wake = make(chan bool, 1)
	w.daemon.EventsAre = []wire.Event{{Seq: 1, Node: "n-1", Stream: "scripted"}}
	ln := got.Do(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = ln.Close() })
	w.address = ln.Addr().String()
	go func() { // sshd as inetd runs it, for each connection
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.logins.Add(1)
			f, err := c.(*net.TCPConn).File()
			_ = c.Close()
			if err != nil {
				return
			}
			cmd := exec.Command("/usr/sbin/sshd", "-i", "-f", "/home/sshd_config", "-E", "/home/sshd.log")
			cmd.Stdin, cmd.Stdout = f, f
			if cmd.Start() == nil {
				go func() { _ = cmd.Wait() }() // it ends with its connection
			}
			_ = f.Close()
		}
	}()
	w.knowHost(t, "host_key")
	return w
}

// knowHost makes root's ssh take a key as that of the host.
func (w *sshWorld) knowHost(t *testing.T, key string) {
	t.Helper()
	host, port, err := net.SplitHostPort(w.address)
	require.NoError(t, err)
	pub := got.Do(os.ReadFile("/home/" + key + ".pub"))(t)
	require.NoError(t, os.WriteFile("/home/root/.ssh/known_hosts", fmt.Appendf(nil, "[%s]:%s %s", host, port, pub), 0o600))
}

// serve starts the daemon on its usual socket.
func (w *sshWorld) serve(t *testing.T) {
	t.Helper()
	ln := got.Do(api.Listen(api.DefaultSocket))(t)
	require.NoError(t, api.SetGroup(api.DefaultSocket, "fenced-view"))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	roles := api.Roles{Viewer: []string{"group:fenced-view"}, Operator: []string{"user:olga", "user:otto"}, Admin: []string{"user:ada"}}
	go func() {
		served <- api.NewServer(w.daemon, roles, log.New(os.Stderr, "daemon: ", 0), wire.Abort).Serve(ctx, ln)
	}()
	w.stop = func() error { cancel(); w.stop = nil; return <-served }
}

// answer is what fencectl printed, and its exit status.
type answer struct {
	out, errs string
	status    int
}

// as runs fencectl on this machine, with the daemon of the host as a user sees it who logs in there.
func (w *sshWorld) as(t *testing.T, user string, args ...string) answer {
	t.Helper()
	return fencectl(t, append([]string{"--host", "ssh://" + user + "@" + w.address}, args...)...)
}

func fencectl(t *testing.T, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pace.Tries)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/local/bin/fencectl", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10")
	_ = cmd.Run() // its exit status says it
	require.NoError(t, ctx.Err(), "fencectl %s: %s", args, errs.String())
	return answer{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// Each user has the role of the login there, and the records name it.
func testHostRoles(t *testing.T, w *sshWorld) {
	a := w.as(t, "vera", "status")
	assert.Contains(t, a.out, "fenced 0.1.0: armed", a.errs)
	assert.Equal(t, exitOK, a.status, a.errs)
	a = w.as(t, "vera", "hold", "n-1", "--reason", "disk")
	assert.Equal(t, exitNotAuthorised, a.status)
	assert.Contains(t, a.errs, "vera (uid 4001) may not ")
	a = w.as(t, "vera", "fence", "n-1", "--reason", "disk", "--yes")
	assert.Equal(t, exitNotAuthorised, a.status)
	assert.Contains(t, a.errs, "vera (uid 4001) may not ")
	assert.Empty(t, w.daemon.orders())
	a = w.as(t, "olga", "hold", "n-1", "--reason", "disk")
	assert.Equal(t, exitOK, a.status, a.errs)
	a = w.as(t, "ada", "fence", "n-2", "--reason", "disk", "--yes")
	assert.Equal(t, exitOK, a.status, a.errs)
	assert.Equal(t, []string{"hold n-1 by olga (uid 4002)", "fence n-2 by ada (uid 4004)"}, w.daemon.orders())
}

// One login is one person, however often she logs in.
func testHostTwoPersons(t *testing.T, w *sshWorld) {
	abort := []string{"abort", "r-1", "--reason", "wrong node"}
	for range 2 {
		a := w.as(t, "olga", abort...)
		assert.Equal(t, exitRefused, a.status)
		assert.Contains(t, a.errs, api.CodeSecondPersonNeeded)
	}
	assert.Empty(t, w.daemon.orders())
	a := w.as(t, "otto", abort...)
	assert.Equal(t, exitOK, a.status, a.errs)
	assert.Equal(t, []string{"abort r-1 by olga (uid 4002) and otto (uid 4003)"}, w.daemon.orders())
}

// An order that is waited for takes a login for the stream of events, and one or two for all that is asked.
func testHostFewLogins(t *testing.T, w *sshWorld) {
	before := w.logins.Load()
	a := w.as(t, "ada", "fence", "n-1", "--reason", "disk", "--yes", "--wait")
	assert.Equal(t, exitOK, a.status, a.errs)
	assert.Contains(t, a.out, "n-1: Done")
	assert.LessOrEqual(t, w.logins.Load()-before, int64(3))
}

// What the files of a login print is no answer.
func testHostNoise(t *testing.T, w *sshWorld) {
	a := w.as(t, "otto", "status", "-o", "json")
	assert.Equal(t, exitOK, a.status, a.errs)
	assert.True(t, strings.HasPrefix(a.out, `{"apiVersion"`), a.out)
}

// A key may be for this alone: docs/security.md shows how.
func testHostRestrictedKey(t *testing.T, w *sshWorld) {
	a := w.as(t, "rita", "status")
	assert.Equal(t, exitOK, a.status, a.errs)
	host, port, err := net.SplitHostPort(w.address)
	require.NoError(t, err)
	out, err := exec.Command("ssh", "-p", port, "-o", "BatchMode=yes", "rita@"+host, "id").Output()
	require.NoError(t, err)
	assert.NotContains(t, string(out), "uid=", "the key runs nothing else")
}

// ssh itself fails.
func testHostSSHFails(t *testing.T, w *sshWorld) {
	fails := func(a answer, want ...string) {
		t.Helper()
		assert.Equal(t, exitUnreachable, a.status)
		for _, text := range append(want, "fencectl: read the status: ") {
			assert.Contains(t, a.errs, text)
		}
		assert.Empty(t, a.out)
	}
	fails(w.as(t, "kim", "status"), "ssh to kim@127.0.0.1 failed: ", "Permission denied (publickey)", "hint: it is ssh that failed: try ssh -p ", " kim@127.0.0.1 true")
	fails(w.as(t, "nobodythere", "status"), "ssh to nobodythere@127.0.0.1 failed: ", "Permission denied")
	w.knowHost(t, "other_key")
	fails(w.as(t, "vera", "status"), "ssh to vera@127.0.0.1 failed: ", "Host key verification failed")
	require.NoError(t, os.Remove("/home/root/.ssh/known_hosts"))
	fails(w.as(t, "vera", "status"), "ssh to vera@127.0.0.1 failed: ", "Host key verification failed")
	w.knowHost(t, "host_key")
	closed := got.Do(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, closed.Close())
	fails(fencectl(t, "--host", "ssh://vera@"+closed.Addr().String(), "status"), "ssh to vera@127.0.0.1 failed: ", "Connection refused")
	t.Setenv("PATH", "/nonexistent")
	fails(w.as(t, "vera", "status"), "ssh to vera@127.0.0.1 failed: start the program ssh of this host: ", "not found")
}

// ssh logs in, and fencectl there is not what it must be.
func testHostProgramFails(t *testing.T, w *sshWorld) {
	a := w.as(t, "mona", "status")
	assert.Equal(t, exitUnreachable, a.status)
	assert.Contains(t, a.errs, `the login of mona@127.0.0.1 did not run fencectl: exit status 3: \x1b[2Jgo away`)
	assert.NotContains(t, a.errs, "\x1b")

	mine := filepath.Join(t.TempDir(), "fencectl") // for here, while the host has another one
	require.NoError(t, os.Rename("/usr/local/bin/fencectl", "/usr/local/bin/mine"))
	text := got.Do(os.ReadFile("/usr/local/bin/mine"))(t)
	require.NoError(t, os.WriteFile(mine, text, 0o755))
	t.Cleanup(func() { assert.NoError(t, os.Rename("/usr/local/bin/mine", "/usr/local/bin/fencectl")) })
	vera := func() answer {
		cmd := exec.CommandContext(t.Context(), mine, "--host", "ssh://vera@"+w.address, "status")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		_ = cmd.Run() // its exit status says it
		return answer{"", errs.String(), cmd.ProcessState.ExitCode()}
	}
	a = vera()
	assert.Equal(t, exitUnreachable, a.status)
	assert.Contains(t, a.errs, "fencectl is not installed on the host, or not in the PATH of vera@127.0.0.1: ")
	assert.Contains(t, a.errs, "hint: install the package of fenced on that host")
	require.NoError(t, os.WriteFile("/usr/local/bin/fencectl", []byte("#!/bin/sh\necho \"fencectl: unknown verb \\\"$1\\\"\" >&2\nexit 64\n"), 0o755))
	a = vera()
	assert.Equal(t, exitUnreachable, a.status)
	assert.Contains(t, a.errs, `fencectl on the host of vera@127.0.0.1 is too old for --host: fencectl: unknown verb "dial-stdio"`)
	assert.Contains(t, a.errs, "hint: upgrade fenced on that host: ssh ")
}

// fencectl there cannot reach fenced.
func testHostSocketFails(t *testing.T, w *sshWorld) {
	a := w.as(t, "nora", "status")
	assert.Equal(t, exitNotAuthorised, a.status)
	assert.Contains(t, a.errs, "nora@127.0.0.1 may not connect to the socket of fenced there: fencectl: connect to /run/fenced/fenced.sock: permission denied")
	assert.Contains(t, a.errs, "on that host: usermod -aG fenced-view nora, then log in anew")
	down := func(a answer, want string) {
		t.Helper()
		assert.Equal(t, exitUnreachable, a.status)
		assert.Contains(t, a.errs, "logged in as vera@127.0.0.1, but fenced does not answer there: fencectl: connect to "+want)
		assert.Regexp(t, `hint: is it running\? ssh -p [0-9]+ vera@127.0.0.1 systemctl status fenced`, a.errs)
	}
	down(w.as(t, "vera", "--socket", "/run/other.sock", "status"), "/run/other.sock: no such file or directory")
	require.NoError(t, w.stop())
	down(w.as(t, "vera", "status"), "/run/fenced/fenced.sock: no such file or directory")
	ln := got.Do(net.ListenUnix("unix", &net.UnixAddr{Name: api.DefaultSocket, Net: "unix"}))(t)
	ln.SetUnlinkOnClose(false) // as of a daemon that was killed
	require.NoError(t, ln.Close())
	require.NoError(t, os.Chmod(api.DefaultSocket, 0o666))
	down(w.as(t, "vera", "status"), "/run/fenced/fenced.sock: connection refused")
}

// sshProcesses are the pids of the ssh that fencectl started.
func (w *sshWorld) sshProcesses(t *testing.T) (pids []int) {
	t.Helper()
	_, port, err := net.SplitHostPort(w.address)
	require.NoError(t, err)
	for _, file := range got.Do(filepath.Glob("/proc/[0-9]*/cmdline"))(t) {
		text, err := os.ReadFile(file)
		if err == nil && bytes.HasPrefix(text, []byte("ssh\x00")) && bytes.Contains(text, []byte("\x00"+port+"\x00")) {
			pids = append(pids, got.Do(strconv.Atoi(strings.Split(file, "/")[2]))(t))
		}
	}
	return pids
}

// However fencectl ends, its ssh ends, too.
func testHostLeavesNothing(t *testing.T, w *sshWorld) {
	running := func() int { return len(w.sshProcesses(t)) }
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, os.Kill} {
		cmd := exec.CommandContext(t.Context(), "/usr/local/bin/fencectl", "--host", "ssh://vera@"+w.address, "events", "--follow")
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return running() == 1 }, pace.Tries, 10*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(s))
		err := cmd.Wait()
		if s == os.Kill {
			require.Error(t, err)
			require.Eventually(t, func() bool { return running() == 0 }, pace.Tries, 10*time.Millisecond)
			continue
		}
		require.NoError(t, err)
		assert.Zero(t, running(), "after %s", s)
	}
	w.as(t, "vera", "status")
	assert.Zero(t, running())
}

// With --resume the events go on after a connection that broke.
func testHostEventsGoOn(t *testing.T, w *sshWorld) {
	f := startKillable(t, nil, "/usr/local/bin/fencectl", "--host", "ssh://vera@"+w.address, "events", "--follow", "-o", "json", "--resume", filepath.Join(t.TempDir(), "place"))
	assert.Equal(t, []string{"n-1"}, f.events(t, 1))
	pids := w.sshProcesses(t)
	require.Len(t, pids, 1)
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
	assert.Equal(t, []string{"n-1"}, f.events(t, 1), "the scripted daemon gives it again to each connection")
	require.NoError(t, f.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, f.cmd.Wait())
}

// At a terminal, ssh asks whoever sits there.
func testHostAsks(t *testing.T, w *sshWorld) {
	require.NoError(t, os.Remove("/home/root/.ssh/known_hosts"))
	t.Cleanup(func() { w.knowHost(t, "host_key") })
	cmd := exec.CommandContext(t.Context(), "script", "-qec", "/usr/local/bin/fencectl --host ssh://vera@"+w.address+" --no-color status", "/dev/null")
	in := got.Do(cmd.StdinPipe())(t)
	out := got.Do(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	var said []byte
	for one := make([]byte, 1); !bytes.HasSuffix(said, []byte("(yes/no")); said = append(said, one...) {
		_, err := out.Read(one)
		require.NoError(t, err, "%s", said)
	}
	got.Do(in.Write([]byte("yes\n")))(t)
	assert.Contains(t, string(got.Do(io.ReadAll(out))(t)), "fenced 0.1.0: armed")
	require.NoError(t, cmd.Wait())
}

// With the configuration of ssh that docs/day-to-day.md names, all commands share one login, which outlives them.
func testHostSharedLogin(t *testing.T, w *sshWorld) {
	config := "/home/root/.ssh/config"
	require.NoError(t, os.WriteFile(config, []byte("Host *\n ControlMaster auto\n ControlPath ~/.ssh/%C\n ControlPersist 10m\n"), 0o600))
	before := w.logins.Load()
	for range 2 {
		a := w.as(t, "vera", "status")
		assert.Equal(t, exitOK, a.status, a.errs)
	}
	a := w.as(t, "ada", "fence", "n-1", "--reason", "disk", "--yes", "--wait")
	assert.Equal(t, exitOK, a.status, a.errs)
	assert.Equal(t, int64(2), w.logins.Load()-before, "one of each user")
	host, port, err := net.SplitHostPort(w.address)
	require.NoError(t, err)
	for _, user := range []string{"vera", "ada"} {
		got.Do(exec.Command("ssh", "-p", port, "-O", "exit", user+"@"+host).CombinedOutput())(t)
	}
	require.NoError(t, os.Remove(config))
}

// The page reads over the same few logins as every verb, goes on after one that broke, and leaves no ssh.
func testHostPage(t *testing.T, w *sshWorld) {
	before := w.logins.Load()
	p := startKillable(t, nil, "/usr/local/bin/fencectl", "--host", "ssh://vera@"+w.address, "ui")
	address := ""
	for address == "" && p.out.Scan() {
		address = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/\?token=\S+`).FindString(p.out.Text())
	}
	require.NotEmpty(t, address)
	browser := &http.Client{Jar: got.Do(cookiejar.New(nil))(t)}
	load := func(from string) (*http.Response, string) {
		resp := got.Do(browser.Get(from))(t)
		defer resp.Body.Close()
		return resp, string(got.Do(io.ReadAll(resp.Body))(t))
	}
	first, text := load(address)
	page := first.Request.URL.String()
	assert.Contains(t, text, "node?cluster=prod&amp;node=n-1")
	live := got.Do(browser.Get(page + "live/"))(t)
	defer live.Body.Close()
	for range 5 {
		_, text = load(page)
		assert.Contains(t, text, ">live<")
	}
	assert.LessOrEqual(t, w.logins.Load()-before, int64(3))
	for _, pid := range w.sshProcesses(t) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	require.Eventually(t, func() bool { _, text = load(page); return strings.Contains(text, ">live<") }, pace.Tries, 100*time.Millisecond)
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, p.cmd.Wait())
	assert.Empty(t, w.sshProcesses(t))
}

// TestHintsAreForTheOtherHost: what is to be done about a fenced that hangs, is to be done where it is.
func TestHintsAreForTheOtherHost(t *testing.T) {
	silent := fmt.Errorf("%w: %w", api.ErrUnreachable, api.ErrSilent)
	c := &cli{host: "ssh://anna@bastion"}
	c.client()
	var exit *exitError
	require.ErrorAs(t, c.there(requestError("read the status", silent)), &exit)
	assert.Equal(t, exitUnreachable, exit.code)
	assert.Contains(t, exit.hint[0], "on anna@bastion: it is stopped or hangs: systemctl status fenced")
	c = &cli{}
	c.client()
	require.ErrorAs(t, c.there(requestError("read the status", silent)), &exit)
	assert.NotContains(t, exit.hint[0], "bastion")
}

// TestOrderWhoseConnectionBroke: an order over ssh may have arrived.
func TestOrderWhoseConnectionBroke(t *testing.T) {
	broke := fmt.Errorf("%w: %w", api.ErrUnreachable, &remote.Error{Leg: remote.SSH, Host: remote.Host{Name: "bastion"}, Text: "Timeout"})
	var exit *exitError
	require.ErrorAs(t, requestError("pause", broke), &exit)
	assert.Equal(t, []string{"it is ssh that failed: try ssh bastion true"}, exit.hint)
	require.ErrorAs(t, requestError("pause", fmt.Errorf("%w; %w", broke, api.ErrPerhapsSent)), &exit)
	assert.Contains(t, exit.hint[0], "the order may have been sent")
	require.ErrorAs(t, requestError("pause", fmt.Errorf("%w; %w", context.Canceled, api.ErrPerhapsSent)), &exit)
	assert.Equal(t, []string{"look at fencectl status before you give it again"}, exit.hint, "Ctrl-C")
}

// The shell completes names of the other host.
func testHostCompletes(t *testing.T, w *sshWorld) {
	a := w.as(t, "vera", "status") // the first login may be slow
	require.Equal(t, exitOK, a.status, a.errs)
	require.Eventually(t, func() bool {
		a = fencectl(t, "__complete", "--host", "ssh://vera@"+w.address, "explain", "n")
		return strings.Contains(a.out, "n-1\nn-2\n")
	}, pace.Tries, time.Millisecond, "a login may take longer than a completion waits")
	a = fencectl(t, "__complete", "--host", "ssh://-oProxyCommand=x@"+w.address, "explain", "n")
	assert.NotContains(t, a.out, "n-1")
}
