package api

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/asroot"
)

func TestListenMode(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	ln, err := Listen(path)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o660, info.Mode())
	require.NoError(t, ln.Close())
	assert.NoFileExists(t, path)
}

func TestSetGroup(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	ln, err := Listen(path)
	require.NoError(t, err)
	require.ErrorContains(t, SetGroup(path, "no-such-group-here"), "find the group")
	other := otherUser(t, "nobody")
	group, err := user.LookupGroupId(other.Gid)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, SetGroup(path, group.Name))
	}
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o660, info.Mode())
	s, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	assert.Equal(t, other.Gid, strconv.FormatUint(uint64(s.Gid), 10))
	require.NoError(t, ln.Close())
}

func TestListenReplacesOnlyADeadSocket(t *testing.T) {
	t.Run("dead", func(t *testing.T) {
		path := filepath.Join(shortDir(t), "s")
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		require.NoError(t, err)
		dead.SetUnlinkOnClose(false)
		require.NoError(t, dead.Close())
		require.FileExists(t, path)
		ln, err := Listen(path)
		require.NoError(t, err)
		require.NoError(t, ln.Close())
	})
	t.Run("alive", func(t *testing.T) {
		path := filepath.Join(shortDir(t), "s")
		alive, err := Listen(path)
		require.NoError(t, err)
		defer alive.Close()
		_, err = Listen(path)
		require.ErrorContains(t, err, "another fenced answers there")
		c, err := net.Dial("unix", path)
		require.NoError(t, err, "the first one must go on")
		require.NoError(t, c.Close())
	})
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(shortDir(t), "s")
		require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
		_, err := Listen(path)
		require.ErrorContains(t, err, "is not a socket")
		assert.FileExists(t, path)
	})
	t.Run("a link to a file", func(t *testing.T) {
		dir := shortDir(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
		require.NoError(t, os.Symlink("f", filepath.Join(dir, "s")))
		_, err := Listen(filepath.Join(dir, "s"))
		require.ErrorContains(t, err, "is not a socket")
	})
}

// TestPeerOfAnotherUser connects as another user and must be known, and
// judged, as that user.
func TestPeerOfAnotherUser(t *testing.T) {
	nobody := otherUser(t, "nobody")
	group, err := user.LookupGroupId(nobody.Gid)
	require.NoError(t, err)
	path, ln := listenForAll(t)
	serveOn(t, ln, &fake{}, Roles{Viewer: []string{"group:" + group.Name}})

	assert.Contains(t, requestAs(t, nobody, path, "GET /v1/status", ""), "200 OK")
	reply := requestAs(t, nobody, path, "POST /v1/arm", "")
	assert.Contains(t, reply, "403 Forbidden")
	assert.Contains(t, reply, "nobody (uid "+nobody.Uid+") may not POST /v1/arm")
}

// TestSecondPersonIsAnotherUser: two persons are two users who logged in, and one who
// connects twice is one.
func TestSecondPersonIsAnotherUser(t *testing.T) {
	needLogins(t)
	nobody, daemon := otherUser(t, "nobody"), otherUser(t, "daemon")
	path, ln := listenForAll(t)
	d := &fake{}
	serveOn(t, ln, d, Roles{Operator: []string{"user:nobody", "user:daemon"}}, Fence)

	fence := func(u *user.User) string {
		return requestBy(t, uidOf(t, u), uidOf(t, u), path, "POST /v1/nodes/n-1/fence", `{"reason":"disk"}`)
	}
	for range 2 {
		assert.Contains(t, fence(nobody), CodeSecondPersonNeeded)
	}
	require.Empty(t, d.orders)
	assert.Contains(t, fence(daemon), "200 OK")
	require.Len(t, d.orders, 1)
	assert.Equal(t, fmt.Sprintf("nobody (uid %s) and daemon (uid %s)", nobody.Uid, daemon.Uid), d.orders[0].Actor)
}

// otherUser is one that a test by root can become.
func otherUser(t *testing.T, name string) *user.User {
	t.Helper()
	asroot.Need(t, "become another user")
	u, err := user.Lookup(name)
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("there is no such user: %v", err)
	}
	require.NoError(t, err)
	return u
}

// listenForAll listens where every user can connect.
func listenForAll(t *testing.T) (path string, ln net.Listener) {
	t.Helper()
	dir := shortDir(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	path = filepath.Join(dir, "s")
	ln, err := Listen(path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o666))
	return path, ln
}

// requestAs makes one request as the user and gives what came back.
func requestAs(t *testing.T, u *user.User, path, request, body string) string {
	t.Helper()
	c := dialAs(t, u, path)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", request, len(body), body)
	require.NoError(t, err)
	reply, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(reply)
}

// dialAs connects from a thread that has become the user. The thread is never
// given back: it ends with its goroutine.
func dialAs(t *testing.T, u *user.User, path string) net.Conn {
	t.Helper()
	uid, err := strconv.Atoi(u.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(u.Gid)
	require.NoError(t, err)
	type result struct {
		fd  int
		err error
	}
	dialed := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
			dialed <- result{err: e}
			return
		}
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			dialed <- result{err: e}
			return
		}
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err == nil {
			err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
		}
		dialed <- result{fd: fd, err: err}
	}()
	r := <-dialed
	require.NoError(t, r.err)
	f := os.NewFile(uintptr(r.fd), path)
	defer f.Close()
	c, err := net.FileConn(f)
	require.NoError(t, err)
	return c
}
