package api

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/test/asroot"
)

// TestMain is also a client of another user, and a server that is confined: see requestBy, and
// TestHiddenProcessIsNobody.
func TestMain(m *testing.M) {
	if path := os.Getenv("FENCED_TEST_CLIENT"); path != "" {
		os.Exit(client(path))
	}
	if os.Getenv("FENCED_TEST_PEER") != "" {
		os.Exit(peer(3))
	}
	os.Exit(m.Run())
}

// client sends its input to a socket and prints what comes back.
func client(path string) int {
	c, err := net.Dial("unix", path)
	if err == nil {
		if _, err = io.Copy(c, os.Stdin); err == nil {
			_, err = io.Copy(os.Stdout, c)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// peer prints who is at the other end of a socket, and why the login is unknown.
func peer(fd uintptr) int {
	c, err := net.FileConn(os.NewFile(fd, "socket"))
	var p Peer
	if err == nil {
		p, err = peerOf(c.(*net.UnixConn))
	}
	fmt.Println(p.Actor(), p.NoLogin, err)
	return 0
}

// requestBy makes one request in a process of its own: of a user, in a session that
// began with a login, as sudo and pam_loginuid make them.
func requestBy(t *testing.T, uid, login uint32, path, request, body string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", `echo "$1" >/proc/self/loginuid && exec setpriv --reuid="$2" --regid="$2" --clear-groups "$3"`,
		"sh", fmt.Sprint(login), fmt.Sprint(uid), program(t))
	cmd.Env = []string{"FENCED_TEST_CLIENT=" + path, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(fmt.Sprintf("%s HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", request, len(body), body))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func uidOf(t *testing.T, u *user.User) uint32 {
	t.Helper()
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	require.NoError(t, err)
	return uint32(uid)
}

// program is this test where every user can run it.
func program(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	text, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	path := filepath.Join(dir, "client")
	require.NoError(t, os.WriteFile(path, text, 0o755))
	require.NoError(t, os.Chmod(path, 0o755))
	return path
}

// needLogins skips a test where processes have no login uid, or keep theirs for good.
func needLogins(t *testing.T) {
	t.Helper()
	asroot.Need(t, "become another user")
	text, err := exec.Command("sh", "-c", "echo 4003 >/proc/self/loginuid").CombinedOutput()
	if err != nil {
		t.Skipf("no process can log in here: %s", text)
	}
}

// TestSudoMakesNoSecondPerson: three processes of the kernel's, and two people.
func TestSudoMakesNoSecondPerson(t *testing.T) {
	needLogins(t)
	const anna, bert = 4003, 4004
	path, ln := listenForAll(t)
	d := &fake{}
	serveOn(t, ln, d, Roles{Operator: []string{"user:nobody"}}, Fence)
	fence := func(uid, login uint32) string {
		return requestBy(t, uid, login, path, "POST /v1/nodes/n-1/fence", `{"reason":"disk"}`)
	}
	assert.Contains(t, fence(0, noLogin), CodePersonUnknown, "root, of no login")
	assert.Contains(t, fence(0, 0), CodePersonUnknown, "root, who logged in as root")
	assert.Contains(t, fence(0, anna), CodeSecondPersonNeeded)
	assert.Contains(t, fence(0, anna), CodeSecondPersonNeeded, "the same by sudo again")
	assert.Contains(t, fence(0, 0), CodePersonUnknown)
	assert.Contains(t, fence(uidOf(t, otherUser(t, "nobody")), anna), CodeSecondPersonNeeded, "the same by sudo -u nobody")
	require.Empty(t, d.orders)
	assert.Contains(t, fence(0, bert), "200 OK")
	require.Len(t, d.orders, 1)
	assert.Equal(t, "uid 4003 as root (uid 0) and uid 4004 as root (uid 0)", d.orders[0].Actor)
}

// connect is one connection to a listener, accepted, by a process of its own that
// lives until its input ends.
func connect(t *testing.T) (accepted *net.UnixConn, end func()) {
	t.Helper()
	path, ln := listenForAll(t)
	t.Cleanup(func() { assert.NoError(t, ln.Close()) })
	cmd := exec.CommandContext(t.Context(), program(t))
	cmd.Env = []string{"FENCED_TEST_CLIENT=" + path}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c.(*net.UnixConn), func() {
		require.NoError(t, cmd.Process.Kill())
		_ = in.Close()
		require.Error(t, cmd.Wait(), "it was killed")
	}
}

// TestLoginOfAProcessThatEnded is nobody's: its pid may be another's by now.
func TestLoginOfAProcessThatEnded(t *testing.T) {
	c, end := connect(t)
	p, err := peerOf(c)
	require.NoError(t, err)
	require.NoError(t, p.NoLogin)
	end()
	p, err = peerOf(c)
	require.NoError(t, err)
	require.ErrorIs(t, p.NoLogin, errEnded)
	assert.Nil(t, p.Login)
	assert.Equal(t, uint32(os.Geteuid()), p.UID, "who it was is known all the same")
}

// TestPeerProcess: what was read of a process counts only if it lived then, whether
// the kernel knows who connected or only its pid.
func TestPeerProcess(t *testing.T) {
	for _, kernel := range []string{"that knows", "before 6.5"} {
		t.Run(kernel, func(t *testing.T) {
			c, end := connect(t)
			raw, err := c.SyscallConn()
			require.NoError(t, err)
			var p *peerProcess
			require.NoError(t, raw.Control(func(fd uintptr) {
				cred, credErr := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
				require.NoError(t, credErr)
				p, err = openPeer(int(fd), cred.Pid)
			}))
			require.NoError(t, err)
			defer p.close()
			if kernel == "before 6.5" {
				require.NoError(t, unix.Close(p.pidfd))
				p.pidfd = -1
			} else if p.pidfd < 0 {
				t.Skip("this kernel does not know who connected")
			}
			require.NoError(t, p.alive())
			end()
			require.ErrorIs(t, p.alive(), errEnded)
			_, err = p.dir.ReadFile("loginuid")
			require.Error(t, err)
		})
	}
}

// TestHiddenProcessIsNobody: where /proc shows no processes of others, a person cannot
// be told from another, and why is said.
func TestHiddenProcessIsNobody(t *testing.T) {
	needLogins(t)
	c, _ := connect(t)
	file, err := c.File()
	require.NoError(t, err)
	defer file.Close()
	cmd := exec.Command("unshare", "--mount", "sh", "-c",
		`mount -t proc -o hidepid=invisible proc /proc && exec setpriv --reuid=4005 --regid=4005 --clear-groups "$1"`, "sh", program(t))
	cmd.Env = []string{"FENCED_TEST_PEER=3", "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), errHidden.Error())
}

// TestLoginInAnotherPIDNamespace: without a pid nobody can be looked at.
func TestLoginInAnotherPIDNamespace(t *testing.T) {
	c, _ := connect(t)
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { _, err = loginOf(int(fd), 0) }))
	require.ErrorContains(t, err, "another PID namespace")
}
