package login

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
)

const anna = 4003

// TestMain is also a process that has a descriptor of another, and sees no process of others: see TestAskForOneThatIsHidden.
func TestMain(m *testing.M) {
	if socket := os.Getenv("FENCED_TEST_ASK"); socket != "" {
		p := held(3)
		_, _, hidden := p.UID()
		uid, ok, err := p.Ask(socket)
		fmt.Println(hidden, uid, ok, err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sleeper is a process of a login, or of none, until its input ends.
func sleeper(t *testing.T, login string) (p *Process, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `[ -z "$1" ] || echo "$1" >/proc/self/loginuid; echo; exec cat`, "sh", login)
	in := must.Do(cmd.StdinPipe())(t)
	out := must.Do(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // it may have been killed
	})
	must.Do(io.ReadFull(out, make([]byte, 1)))(t)
	fd := must.Do(unix.PidfdOpen(cmd.Process.Pid, 0))(t)
	p = held(fd)
	t.Cleanup(func() { _ = p.Close() })
	return p, func() {
		require.NoError(t, cmd.Process.Kill())
		require.NoError(t, unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOWAIT, nil)) // and it stays a zombie
	}
}

// serve runs fenced-login's work until the test ends.
func serve(t *testing.T) (socket string) {
	t.Helper()
	ln := listen(t)
	done := make(chan error, 1)
	go func() { done <- Serve(ln, time.Hour) }()
	t.Cleanup(func() {
		_ = ln.Close()
		assert.ErrorIs(t, <-done, net.ErrClosed)
	})
	return ln.Addr().String()
}

func listen(t *testing.T) *net.UnixListener {
	t.Helper()
	dir := must.Do(os.MkdirTemp("", "login"))(t) // a path of a socket is short
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return must.Do(net.ListenUnix(network, &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: network}))(t)
}

// both reads the login of a process in both ways.
func both(t *testing.T, p *Process, check func(t *testing.T, uid uint32, ok bool, err error)) {
	t.Helper()
	socket := serve(t)
	for name, read := range map[string]func() (uint32, bool, error){
		"itself": p.UID, "by asking": func() (uint32, bool, error) { return p.Ask(socket) },
	} {
		t.Run(name, func(t *testing.T) {
			uid, ok, err := read()
			check(t, uid, ok, err)
		})
	}
}

func TestLoginOfAProcess(t *testing.T) {
	asroot.CanLogIn(t)
	for _, login := range []int{anna, noLogin} {
		p, _ := sleeper(t, strconv.Itoa(login))
		both(t, p, func(t *testing.T, uid uint32, ok bool, err error) {
			require.NoError(t, err)
			assert.Equal(t, login == anna, ok)
			if ok {
				assert.Equal(t, uint32(anna), uid)
			}
		})
	}
}

// TestProcessThatEnded: what /proc tells of it is believed no more. Its pid may be another's by now.
func TestProcessThatEnded(t *testing.T) {
	p, kill := sleeper(t, "")
	_, _, err := p.UID()
	require.NoError(t, err)
	kill()
	both(t, p, func(t *testing.T, _ uint32, ok bool, err error) {
		require.ErrorContains(t, err, ErrEnded.Error())
		assert.False(t, ok)
	})
}

// TestProcessThatWasLetGo: its descriptor may be another process's by now.
func TestProcessThatWasLetGo(t *testing.T) {
	p, _ := sleeper(t, "")
	require.NoError(t, p.Close())
	both(t, p, func(t *testing.T, _ uint32, _ bool, err error) { require.ErrorContains(t, err, "closed") })
}

// TestConnected holds the process that connected, and nothing where no pid is known.
func TestConnected(t *testing.T) {
	pair := must.Do(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer func() { assert.NoError(t, unix.Close(pair[0])); assert.NoError(t, unix.Close(pair[1])) }()
	p := must.Do(Connected(pair[0], int32(os.Getpid())))(t)
	defer p.Close()
	pid := must.Do(p.pid())(t)
	assert.Equal(t, os.Getpid(), pid)
	_, err := Connected(pair[0], 0)
	require.ErrorIs(t, err, ErrForeign)
}

// TestAskForOneThatIsHidden: where /proc shows no processes of others, as in the sandbox of the daemon, the login is told by who sees them.
func TestAskForOneThatIsHidden(t *testing.T) {
	asroot.CanLogIn(t)
	p, _ := sleeper(t, strconv.Itoa(anna))
	socket := serve(t)
	require.NoError(t, os.Chmod(filepath.Dir(socket), 0o755))
	require.NoError(t, os.Chmod(socket, 0o666))
	self := must.Do(os.ReadFile("/proc/self/exe"))(t)
	program := filepath.Join(filepath.Dir(socket), "self")
	require.NoError(t, os.WriteFile(program, self, 0o755))
	require.NoError(t, os.Chmod(program, 0o755))
	cmd := exec.Command("unshare", "--mount", "sh", "-c",
		`mount -t proc -o hidepid=invisible proc /proc && exec setpriv --reuid=4005 --regid=4005 --clear-groups "$1"`, "sh", program)
	cmd.Env = []string{"FENCED_TEST_ASK=" + socket, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{p.pidfd}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), ErrHidden.Error())
	assert.Contains(t, string(out), "4003 true <nil>")
}

// TestNobodyAnswers: then the login is unknown, which is not the same as none.
func TestNobodyAnswers(t *testing.T) {
	p, _ := sleeper(t, "")
	silent := listen(t)
	defer silent.Close()
	for name, socket := range map[string]string{"nothing is there": "/nonexistent/login.sock", "it hangs": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			_, ok, err := p.Ask(socket)
			require.ErrorIs(t, err, ErrNoAnswer)
			assert.False(t, ok)
		})
	}
}

func TestStrangeAnswers(t *testing.T) {
	p, _ := sleeper(t, "")
	for _, text := range []string{"login", "login x", "login -1", "login 4294967295", "login 4294967296", "none of this", "unkept here", "yes", strings.Repeat("x", 5000)} {
		ok, err := askOneThatSays(t, p, text)
		require.ErrorIs(t, err, ErrNoAnswer, text)
		assert.False(t, ok, text)
	}
	_, err := askOneThatSays(t, p, "unkept")
	require.ErrorIs(t, err, ErrNotKept)
}

// askOneThatSays asks in place of fenced-login one who answers so.
func askOneThatSays(t *testing.T, p *Process, text string) (ok bool, err error) {
	t.Helper()
	ln := listen(t)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_, _ = c.Read(make([]byte, 16))
			_, _ = c.Write([]byte(text))
			_ = c.Close()
		}
	}()
	_, ok, err = p.Ask(ln.Addr().String())
	require.NoError(t, ln.Close())
	return ok, err
}

// TestStrangeQuestions: fenced-login tells why it does not answer, and answers the next.
func TestStrangeQuestions(t *testing.T) {
	socket := serve(t)
	null := must.Do(os.Open(os.DevNull))(t)
	defer null.Close()
	fd := int(null.Fd())
	for _, each := range []struct {
		fds  []int
		want string
	}{
		{nil, "0 descriptors"}, {[]int{fd}, "of no process"}, {[]int{fd, fd}, "2 descriptors"}, {make([]int, 100), "descriptors are passed"},
	} {
		c := must.Do(net.Dial(network, socket))(t)
		_, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte("?"), unix.UnixRights(each.fds...), nil)
		require.NoError(t, err)
		text := must.Do(io.ReadAll(c))(t)
		assert.Contains(t, string(text), answerUnread)
		assert.Contains(t, string(text), each.want)
		require.NoError(t, c.Close())
	}
	p, _ := sleeper(t, "")
	_, _, err := p.Ask(socket)
	require.NoError(t, err)
}

func TestServeEndsWhenNobodyAsks(t *testing.T) {
	ln := listen(t)
	defer ln.Close()
	require.NoError(t, Serve(ln, 10*time.Millisecond))
}

// TestKernelWithoutLogins: where /proc shows a process without a login uid, nobody can have one, which is not the same as having none.
func TestKernelWithoutLogins(t *testing.T) {
	asroot.CanLogIn(t)
	p, _ := sleeper(t, strconv.Itoa(anna))
	pid := must.Do(p.pid())(t)
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs tmpfs /mnt && mkdir -p /mnt/proc && mount --bind /proc /mnt/proc && mkdir "/mnt/$1" &&
		ln -s "/mnt/proc/$$" /mnt/self && : >"/mnt/$1/status" && mount --bind /mnt /proc && mount --bind /mnt/proc /mnt/proc && exec /mnt/self/root/"$2"`,
		"sh", strconv.Itoa(pid), os.Args[0])
	cmd.Env = []string{"FENCED_TEST_ASK=" + serve(t), "PATH=" + os.Getenv("PATH")}
	cmd.ExtraFiles = []*os.File{p.pidfd}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), ErrNotKept.Error())
}
