package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
)

func TestListenMode(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	ln := must.Do(Listen(path))(t)
	info := must.Do(os.Lstat(path))(t)
	assert.Equal(t, os.ModeSocket|0o660, info.Mode())
	require.NoError(t, ln.Close())
	assert.NoFileExists(t, path)
}

func TestSetGroup(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	ln := must.Do(Listen(path))(t)
	require.ErrorContains(t, SetGroup(path, "no-such-group-here"), "find the group")
	other := otherUser(t, "nobody")
	group := must.Do(user.LookupGroupId(other.Gid))(t)
	for range 2 {
		require.NoError(t, SetGroup(path, group.Name))
	}
	info := must.Do(os.Lstat(path))(t)
	assert.Equal(t, os.ModeSocket|0o660, info.Mode())
	s, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	assert.Equal(t, other.Gid, strconv.FormatUint(uint64(s.Gid), 10))
	require.NoError(t, ln.Close())
}

func TestListenReplacesOnlyADeadSocket(t *testing.T) {
	t.Run("dead", func(t *testing.T) {
		path := filepath.Join(shortDir(t), "s")
		dead := must.Do(net.ListenUnix("unix", &net.UnixAddr{Name: path}))(t)
		dead.SetUnlinkOnClose(false)
		require.NoError(t, dead.Close())
		require.FileExists(t, path)
		ln := must.Do(Listen(path))(t)
		require.NoError(t, ln.Close())
	})
	t.Run("alive", func(t *testing.T) {
		path := filepath.Join(shortDir(t), "s")
		alive := must.Do(Listen(path))(t)
		defer alive.Close()
		_, err := Listen(path)
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
	group := must.Do(user.LookupGroupId(nobody.Gid))(t)
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
	asroot.CanLogIn(t)
	nobody, daemon := otherUser(t, "nobody"), otherUser(t, "daemon")
	path, ln := listenForAll(t)
	d := &fake{}
	serveOn(t, ln, d, Roles{Operator: []string{"user:nobody", "user:daemon"}}, wire.Fence)

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
	ln = must.Do(Listen(path))(t)
	require.NoError(t, os.Chmod(path, 0o666))
	return path, ln
}

// requestAs makes one request as the user and gives what came back.
func requestAs(t *testing.T, u *user.User, path, request, body string) string {
	t.Helper()
	c := dialAs(t, u, path)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	must.Do(fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", request, len(body), body))(t)
	reply := must.Do(io.ReadAll(c))(t)
	return string(reply)
}

// dialAs connects from a thread that has become the user. The thread is never
// given back: it ends with its goroutine.
func dialAs(t *testing.T, u *user.User, path string) net.Conn {
	t.Helper()
	uid := must.Do(strconv.Atoi(u.Uid))(t)
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
	return must.Do(net.FileConn(f))(t)
}

// follow is what a caller asks to stay connected.
const follow = "GET /v1/events HTTP/1.1\r\nHost: f\r\n\r\n"

// status gives the first line of what the daemon answers to a connection.
func status(t *testing.T, c net.Conn) string {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, _ = io.WriteString(c, follow) // one that is refused may be closed by now
	line := make([]byte, len("HTTP/1.1 200"))
	must.Do(io.ReadFull(c, line))(t)
	return string(line[len("HTTP/1.1 "):])
}

// holdAll has a user open so many connections, and gives those that stay open, until the test ends.
func holdAll(t *testing.T, u *user.User, path string, n int) (open int) {
	t.Helper()
	for range n {
		c := dialAs(t, u, path)
		got := status(t, c)
		if got == "200" {
			open++
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			continue
		}
		assert.Equal(t, "503", got)
		rest, err := io.ReadAll(c)
		require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), "the daemon closed it, and read nothing: %v", err)
		assert.Contains(t, string(rest), CodeTooManyConnections)
		require.NoError(t, c.Close())
	}
	return open
}

func descriptors(t *testing.T) int {
	t.Helper()
	list := must.Do(os.ReadDir("/proc/self/fd"))(t)
	return len(list)
}

// TestViewersTakeNoSeatOfAnAdmin: viewers who open as many connections as they can, with as many uids as a user namespace gives
// them, keep neither an operator nor an admin from pausing the daemon, and the descriptors that it opens are bounded.
func TestViewersTakeNoSeatOfAnAdmin(t *testing.T) {
	viewers := []*user.User{otherUser(t, "nobody"), otherUser(t, "daemon"), otherUser(t, "bin"), otherUser(t, "sync"), otherUser(t, "games")}
	group := must.Do(user.LookupGroupId(viewers[0].Gid))(t)
	rights := Roles{Viewer: []string{"group:" + group.Name}, Operator: []string{"user:mail"}}
	for _, u := range viewers {
		rights.Viewer = append(rights.Viewer, "user:"+u.Username)
	}
	path, ln := listenForAll(t)
	d := &fake{}
	serveOn(t, ln, d, rights)
	before := descriptors(t)

	each, all := seatsFor[wire.Viewer].each, seatsFor[wire.Viewer].all
	assert.Equal(t, each, holdAll(t, viewers[0], path, 3*each))
	open := each
	var namespaced int
	for i := range 3 * each {
		namespaced += holdAll(t, &user.User{Uid: fmt.Sprint(100000 + i), Gid: viewers[0].Gid}, path, 1)
	}
	assert.Equal(t, each, namespaced, "uids without a name count as one user")
	open += namespaced
	for _, u := range viewers[1:] {
		open += holdAll(t, u, path, 2*each)
	}
	assert.Equal(t, all, open)
	assert.Less(t, descriptors(t), before+3*all+20, "both ends and a pidfd of each that is open, and nothing of the others")

	assert.Contains(t, requestAs(t, otherUser(t, "mail"), path, "POST /v1/pause", `{"reason":"storm"}`), "200 OK")
	must.Do(New(path).Do(t.Context(), wire.Order{Verb: wire.Pause, Reason: "storm"}))(t)
	assert.Len(t, d.orders, 2)
}

// TestOneUserCannotTakeAllSeats: also an admin has so many, and a connection that is closed gives its seat back. Who is refused is told
// by the client, though the daemon read nothing.
func TestOneUserCannotTakeAllSeats(t *testing.T) {
	path := serve(t, &fake{}, Roles{})
	var held []net.Conn
	for range seatsFor[wire.Admin].each {
		c := must.Do(net.Dial("unix", path))(t)
		require.Equal(t, "200", status(t, c))
		held = append(held, c)
	}
	for range 20 {
		_, err := New(path).Do(t.Context(), wire.Order{Verb: wire.Pause, Reason: strings.Repeat("x", maxReason)})
		require.Equal(t, CodeTooManyConnections, codeOf(err), "%v", err)
	}
	require.NoError(t, held[0].Close())
	require.Eventually(t, func() bool {
		_, err := New(path).Status(t.Context())
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	for _, c := range held[1:] {
		require.NoError(t, c.Close())
	}
}

// TestWhoHasNoRoleIsClosed before anything is read, and told why; the log has one line a minute.
func TestWhoHasNoRoleIsClosed(t *testing.T) {
	nobody := otherUser(t, "nobody")
	path, ln := listenForAll(t)
	var text bytes.Buffer
	s := NewServer(&fake{}, roles, log.New(&text, "", 0))
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), ln) }()
	before := descriptors(t)
	for range 50 {
		c := dialAs(t, nobody, path)
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		answer := must.Do(io.ReadAll(c))(t) // nothing is asked
		assert.Contains(t, string(answer), "403 Forbidden")
		assert.Contains(t, string(answer), CodeNotAuthorised)
		require.NoError(t, c.Close())
	}
	assert.Less(t, descriptors(t), before+20)
	require.NoError(t, ln.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)
	assert.Equal(t, 1, strings.Count(text.String(), "\n"), text.String())
	assert.Contains(t, text.String(), "nobody")
}

// TestFullQueueIsWaitedFor: while as many wait to be let in as the kernel keeps, the client tries again.
func TestFullQueueIsWaitedFor(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	fd := must.Do(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	defer syscall.Close(fd)
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	require.NoError(t, syscall.Listen(fd, 0))
	var first net.Conn
	for {
		c, err := net.Dial("unix", path)
		if err != nil {
			require.ErrorIs(t, err, syscall.EAGAIN)
			break
		}
		defer c.Close()
		first = c
	}
	require.NotNil(t, first)
	dialed := make(chan error, 1)
	go func() {
		c, err := Dial(t.Context(), path)
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	accepted, _, err := syscall.Accept(fd)
	require.NoError(t, err)
	defer syscall.Close(accepted)
	require.NoError(t, <-dialed)
}

// slowFirst is a daemon whose first order takes until it is let go.
type slowFirst struct {
	fake
	given        atomic.Int32
	began, until chan struct{}
}

func (d *slowFirst) Do(context.Context, wire.Order) (wire.OrderResult, error) {
	if d.given.Add(1) == 1 {
		close(d.began)
		<-d.until
	}
	return wire.OrderResult{}, nil
}

// TestDryRunsOfViewers: a viewer has one at a time, whatever the uid without a name; operators have no such bound.
func TestDryRunsOfViewers(t *testing.T) {
	d := &slowFirst{began: make(chan struct{}), until: make(chan struct{})}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	const fence, dryRun = "/v1/nodes/n-1/fence", `{"reason":"test","dryRun":true}`
	unnamed := func(uid uint32) Peer { return Peer{UID: uid, Groups: viewer.Groups} }
	first := make(chan int, 1)
	go func() { first <- asked(t, s, unnamed(100000), fence, dryRun) }()
	<-d.began
	assert.Equal(t, http.StatusConflict, asked(t, s, unnamed(100001), fence, dryRun))
	assert.Empty(t, d.denied, "it is no order")
	for _, p := range []Peer{viewer, viewer, oper, admin} {
		assert.Equal(t, http.StatusOK, asked(t, s, p, fence, dryRun), p.User)
	}
	close(d.until)
	assert.Equal(t, http.StatusOK, <-first)
	assert.Equal(t, http.StatusOK, asked(t, s, unnamed(100001), fence, dryRun))
}

// slowStatus is a daemon whose status takes until it is let go.
type slowStatus struct {
	fake
	began, until chan struct{}
}

func (d *slowStatus) Status(context.Context) (wire.Status, error) {
	d.began <- struct{}{}
	<-d.until
	return wire.Status{}, nil
}

// TestViewersLooksAreFew: few answers to viewers are made at once; nobody else waits for them.
func TestViewersLooksAreFew(t *testing.T) {
	d := &slowStatus{began: make(chan struct{}), until: make(chan struct{})}
	s := NewServer(d, roles, log.New(t.Output(), "", 0))
	var all sync.WaitGroup
	look := func(p Peer) {
		all.Go(func() {
			code, _ := requestOf(t, s, p, http.MethodGet, "/v1/status", "")
			assert.Equal(t, http.StatusOK, code)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // a place that is free is given also while the daemon stops
		done, err := s.looks.begin(ctx, wire.Viewer)
		require.NoError(t, err)
		done()
	}
	for range maxViewerLooks {
		look(viewer)
		<-d.began
	}
	_, err := s.looks.begin(ctx, wire.Viewer)
	require.ErrorIs(t, err, context.Canceled)
	look(viewer) // waits
	look(oper)
	<-d.began
	look(admin)
	<-d.began
	close(d.until)
	<-d.began
	all.Wait()
	assert.Empty(t, s.looks)
}

// TestRefusalsInTheLog: one line a minute, which counts those that have none.
func TestRefusalsInTheLog(t *testing.T) {
	var text bytes.Buffer
	r, now := &refusalLog{log: log.New(&text, "", 0)}, time.Now()
	for i := range 1000 {
		r.printf(now.Add(time.Duration(i)*time.Microsecond), "refused: %d", i)
	}
	r.printf(now.Add(deniedEvery), "refused: again")
	r.printf(now.Add(2*deniedEvery), "refused: once more")
	assert.Equal(t, "refused: 0\nrefused: again (and 999 refusals before this one that have no line)\nrefused: once more\n", text.String())
}

// TestRefusedRoutesAreOneLineOfTheLog: also what a viewer may not ask is one line a minute.
func TestRefusedRoutesAreOneLineOfTheLog(t *testing.T) {
	var text bytes.Buffer
	s := NewServer(&fake{}, roles, log.New(&text, "", 0))
	for range 10 {
		assert.Equal(t, 403, asked(t, s, viewer, "/v1/arm", `{"reason":"storm"}`))
	}
	assert.Equal(t, 1, strings.Count(text.String(), "\n"), text.String())
}

// TestManyUidsOfOneUserAreOneRecord: uids without a name fill the audit log no faster than one user.
func TestManyUidsOfOneUserAreOneRecord(t *testing.T) {
	d, now := &deniedLog{recorded: map[deniedKey]time.Time{}}, time.Now()
	assert.True(t, d.first(Peer{UID: 100000}, wire.Fence, now))
	assert.False(t, d.first(Peer{UID: 100001}, wire.Fence, now))
	assert.True(t, d.first(viewer, wire.Fence, now))
}

// TestNamesAreLookedUpAgain: somebody who connects again and again costs one look a second, and how many are kept is bounded.
func TestNamesAreLookedUpAgain(t *testing.T) {
	n, now := &names{}, time.Now()
	root := n.peer(0, 0, now)
	assert.Equal(t, "root", root.User)
	n.of[[2]uint32{0, 0}] = namedPeer{Peer{User: "kept"}, now}
	assert.Equal(t, "kept", n.peer(0, 0, now.Add(nameTime-1)).User)
	assert.Equal(t, root, n.peer(0, 0, now.Add(nameTime)))
	for uid := range uint32(2 * maxNames) {
		n.peer(100000+uid, 0, now)
	}
	assert.LessOrEqual(t, len(n.of), maxNames)
}

// stopsInAccept stops the server while it lets a connection in.
type stopsInAccept struct {
	net.Listener
	stop   func()
	closed chan struct{}
	once   sync.Once
}

func (l *stopsInAccept) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.stop()
		<-l.closed
		time.Sleep(50 * time.Millisecond) // whoever counts the connections now does not see this one
	}
	return c, err
}

func (l *stopsInAccept) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A connection that was let in while the socket was closed is answered before the daemon ends: under fenced.socket no call fails in a restart.
func TestCallerInTheMomentOfAStopIsAnswered(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	ctx, stop := context.WithCancel(t.Context())
	ln := &stopsInAccept{Listener: must.Do(Listen(socket))(t), stop: stop, closed: make(chan struct{})}
	d := &slowStatus{began: make(chan struct{}), until: make(chan struct{})}
	stopped, answered := make(chan error, 1), make(chan error, 1)
	go func() { stopped <- NewServer(d, Roles{}, log.New(t.Output(), "", 0)).Serve(ctx, ln) }()
	go func() {
		_, err := New(socket).Status(t.Context())
		answered <- err
	}()
	select {
	case err := <-answered:
		require.NoError(t, err)
	case <-d.began:
	}
	select {
	case err := <-stopped:
		t.Error("it has stopped, and a caller waits", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(d.until)
	require.NoError(t, <-answered)
	require.NoError(t, <-stopped)
}
