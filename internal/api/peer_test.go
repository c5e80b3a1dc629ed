package api

import (
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/login"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
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

// endsAtOnce is for the environment of client and peer, which have one goroutine: the race detector
// would let each sleep for a second at its end.
const endsAtOnce = "GORACE=atexit_sleep_ms=0"

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
		p, _, err = peerOf(c.(*net.UnixConn), namePeer, os.Getenv("FENCED_TEST_HELPER"))
	}
	p = p.named()
	fmt.Println(p.Actor(), p.NoLogin, err)
	return 0
}

// requestBy makes one request in a process of its own: of a user, in a session that
// began with a login, as sudo and pam_loginuid make them.
func requestBy(t *testing.T, uid, login uint32, path, request, body string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", `echo "$1" >/proc/self/loginuid && exec setpriv --reuid="$2" --regid="$2" --clear-groups "$3"`,
		"sh", fmt.Sprint(login), fmt.Sprint(uid), program(t))
	cmd.Env = []string{"FENCED_TEST_CLIENT=" + path, endsAtOnce, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(fmt.Sprintf("%s HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", request, len(body), body))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func uidOf(t *testing.T, u *user.User) uint32 {
	t.Helper()
	uid := must.Do(strconv.ParseUint(u.Uid, 10, 32))(t)
	return uint32(uid)
}

// program is this test where every user can run it.
func program(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	text := must.Do(os.ReadFile("/proc/self/exe"))(t)
	path := filepath.Join(dir, "client")
	require.NoError(t, os.WriteFile(path, text, 0o755))
	require.NoError(t, os.Chmod(path, 0o755))
	return path
}

// TestSudoMakesNoSecondPerson: three processes of the kernel's, and two people.
func TestSudoMakesNoSecondPerson(t *testing.T) {
	asroot.CanLogIn(t)
	const anna, bert = 4003, 4004
	path, ln := listenForAll(t)
	d := &fake{}
	serveOn(t, ln, d, Roles{Operator: []string{"user:nobody"}}, wire.Fence)
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

// TestServiceOfAUserIsNobody: a process of a user that belongs to no login, such as a unit with User=, is not that user where
// the kernel keeps logins: whoever may start one would be two persons alone. // I26
func TestServiceOfAUserIsNobody(t *testing.T) {
	asroot.CanLogIn(t)
	nobody := uidOf(t, otherUser(t, "nobody"))
	path, ln := listenForAll(t)
	d := &fake{}
	serveOn(t, ln, d, Roles{Operator: []string{"user:nobody"}}, wire.Fence)
	fence := func(uid, login uint32) string {
		return requestBy(t, uid, login, path, "POST /v1/nodes/n-1/fence", `{"reason":"disk"}`)
	}
	assert.Contains(t, fence(0, 4003), CodeSecondPersonNeeded)
	answer := fence(nobody, noLogin)
	assert.Contains(t, answer, CodePersonUnknown)
	assert.Contains(t, answer, "its process belongs to no login")
	require.Empty(t, d.orders)
	assert.Contains(t, fence(nobody, nobody), "200 OK", "who logged in is a person")
}

// connect is one connection to a listener, accepted, by a process of its own that
// lives until its input ends.
func connect(t *testing.T) (accepted *net.UnixConn, end func()) { return connectAs(t, noLogin) }

// noLogin is the login uid of a process that belongs to no login.
const noLogin = math.MaxUint32

// connectAs is connect by a process of a login.
func connectAs(t *testing.T, uid uint32) (accepted *net.UnixConn, end func()) {
	t.Helper()
	path, ln := listenForAll(t)
	t.Cleanup(func() { assert.NoError(t, ln.Close()) })
	cmd := exec.CommandContext(t.Context(), program(t))
	if uid != noLogin {
		cmd = exec.CommandContext(t.Context(), "sh", "-c", `echo "$1" >/proc/self/loginuid && exec "$2"`, "sh", fmt.Sprint(uid), program(t))
	}
	cmd.Env = []string{"FENCED_TEST_CLIENT=" + path, endsAtOnce}
	in := must.Do(cmd.StdinPipe())(t)
	require.NoError(t, cmd.Start())
	c := must.Do(ln.Accept())(t)
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
	p, release, err := peerOf(c, namePeer, "/nonexistent")
	require.NoError(t, err)
	defer release()
	require.NotErrorIs(t, p.named().NoLogin, login.ErrEnded)
	end()
	p = p.named()
	require.ErrorIs(t, p.NoLogin, login.ErrEnded)
	assert.Nil(t, p.Login)
	assert.Equal(t, uint32(os.Geteuid()), p.UID, "who it was is known all the same")
}

// TestLoginAfterTheConnection is nobody's: what held the process is let go with it.
func TestLoginAfterTheConnection(t *testing.T) {
	c, _ := connect(t)
	p, release, err := peerOf(c, namePeer, "/nonexistent")
	require.NoError(t, err)
	release()
	require.Error(t, p.named().NoLogin)
}

// TestHiddenProcessIsNobody: where /proc shows no processes of others, and nobody who sees them answers, a person cannot be told
// from another, and why is said.
func TestHiddenProcessIsNobody(t *testing.T) {
	assert.Contains(t, hiddenPeer(t, "/nonexistent/login.sock"), login.ErrNoAnswer.Error())
}

// TestHiddenProcessHasALogin: fenced-login, which sees it, tells whose.
func TestHiddenProcessHasALogin(t *testing.T) {
	path := filepath.Join(shortDir(t), "login.sock")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o755))
	ln := must.Do(net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
	require.NoError(t, os.Chmod(path, 0o666))
	done := make(chan error, 1)
	go func() { done <- login.Serve(ln, time.Hour) }()
	assert.Equal(t, "uid 4003 as root (uid 0) <nil> <nil>\n", hiddenPeer(t, path))
	require.NoError(t, ln.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)
}

// hiddenPeer is what a server says of a connected process of the login 4003, which it does not see in /proc.
func hiddenPeer(t *testing.T, helper string) string {
	t.Helper()
	asroot.CanLogIn(t)
	c, _ := connectAs(t, 4003)
	file := must.Do(c.File())(t)
	defer file.Close()
	cmd := exec.Command("unshare", "--mount", "sh", "-c",
		`mount -t proc -o hidepid=invisible proc /proc && exec setpriv --reuid=4005 --regid=4005 --clear-groups "$1"`, "sh", program(t))
	cmd.Env = []string{"FENCED_TEST_PEER=3", endsAtOnce, "FENCED_TEST_HELPER=" + helper, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// TestLoginThatCannotBeAskedFor: an order that needs two persons is refused and nobody's word counts, whoever else gives it; any other
// order is carried out, and names the user alone. Who only looks, waits for no answer.
func TestLoginThatCannotBeAskedFor(t *testing.T) {
	asked := 0
	unknown := func(p Peer) Peer {
		p.login = func() (*Login, error) { asked++; return nil, login.ErrNoAnswer }
		return p
	}
	d := &fake{}
	s := NewServer(d, roles, log.New(t.Output(), "", 0), wire.Fence)
	give := func(v wire.Verb, p Peer) error {
		r := must.Do(http.NewRequestWithContext(withPeer(t.Context(), p), "POST", "/", strings.NewReader(`{"reason":"disk"}`)))(t)
		r.SetPathValue("node", "n-1")
		_, err := s.order(v)(t.Context(), r)
		return err
	}
	for _, p := range []Peer{root, admin, oper} {
		err := give(wire.Fence, unknown(p))
		assert.Equal(t, CodePersonUnknown, codeOf(err))
		assert.ErrorContains(t, err, "fenced-login.socket")
	}
	assert.Equal(t, CodeSecondPersonNeeded, codeOf(give(wire.Fence, oper)), "no word counted before")
	assert.Equal(t, CodePersonUnknown, codeOf(give(wire.Fence, unknown(admin))))
	require.Empty(t, d.orders)

	require.NoError(t, give(wire.Pause, unknown(admin)))
	require.Len(t, d.orders, 1)
	assert.Equal(t, "anna (uid 4003)", d.orders[0].Actor)

	before := asked
	code, body := request(t, d, roles, unknown(viewer), "GET", "/v1/status", "")
	assert.Equal(t, http.StatusOK, code, body)
	assert.Equal(t, before, asked)
}

// TestLoginInAnotherPIDNamespace: without a pid nobody can be looked at.
func TestLoginInAnotherPIDNamespace(t *testing.T) {
	c, _ := connect(t)
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { _, err = login.Connected(int(fd), 0) }))
	require.ErrorIs(t, err, login.ErrForeign)
}

// daemon is the user that the daemon runs as, logged in as itself.
var daemon = Peer{UID: uint32(os.Geteuid()), User: "fenced"}

// TestTwoPersonsAreTwoPeople: one human being, by whatever users, is one person. Peers without a login and without a reason are those
// of a kernel that keeps none. // I26
func TestTwoPersonsAreTwoPeople(t *testing.T) {
	hidden := admin
	hidden.NoLogin = errors.New("it is hidden")
	service := oper
	service.NoLogin = errNoLogin
	for _, tc := range []struct {
		name          string
		first, second Peer
		want          string // the answer to the second; "" = it is carried out
	}{
		{"two users", admin, oper, ""},
		{"two by sudo", byLogin(admin, root), byLogin(oper, root), ""},
		{"one by sudo, one not", byLogin(admin, root), oper, ""},
		{"somebody, then a service of another user", admin, service, CodePersonUnknown},
		{"somebody, then a uid without a name", admin, Peer{UID: 100009}, CodePersonUnknown},
		{"somebody, then a uid without a name that chose a login", admin, byLogin(oper, Peer{UID: 100009}), CodePersonUnknown},
		{"oneself twice", admin, byLogin(admin, admin), CodeSecondPersonNeeded},
		{"oneself, then by sudo", admin, byLogin(admin, root), CodeSecondPersonNeeded},
		{"by sudo, then oneself", byLogin(admin, root), admin, CodeSecondPersonNeeded},
		{"by sudo twice", byLogin(admin, root), byLogin(admin, root), CodeSecondPersonNeeded},
		{"oneself, then by sudo as somebody else", admin, byLogin(admin, oper), CodeSecondPersonNeeded},
		{"somebody else by sudo, then who that is", byLogin(admin, oper), oper, CodeSecondPersonNeeded},
		{"oneself, then by sudo as the daemon", admin, byLogin(admin, daemon), CodeSecondPersonNeeded},
		{"oneself, then root", admin, root, CodePersonUnknown},
		{"oneself, then who logged in as root", admin, byLogin(root, root), CodePersonUnknown},
		{"oneself, then root as somebody else", admin, byLogin(root, oper), CodePersonUnknown},
		{"oneself, then the daemon", admin, daemon, CodePersonUnknown},
		{"oneself, then who logged in as the daemon", admin, byLogin(daemon, oper), CodePersonUnknown},
		{"somebody, then one whose login is hidden", oper, hidden, CodePersonUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, now := secondOf(wire.Fence), time.Now()
			give := func(p Peer) error {
				_, _, err := s.check(wire.Order{Verb: wire.Fence, Node: "n-1", Actor: p.Actor()}, p, now)
				return err
			}
			require.Equal(t, CodeSecondPersonNeeded, codeOf(give(tc.first)))
			assert.Equal(t, tc.want, codeOf(give(tc.second)))
			if tc.want == CodePersonUnknown { // in the other order either, and the first one's word still stands
				assert.Equal(t, CodePersonUnknown, codeOf(give(tc.second)))
				assert.Empty(t, codeOf(give(Peer{UID: 4010, User: "nina"})))
				assert.Equal(t, CodePersonUnknown, codeOf(give(tc.second)))
				assert.Equal(t, CodeSecondPersonNeeded, codeOf(give(tc.first)), "who counts as none is no first person")
			}
		})
	}
}

// codeOf is the code of an answer, "" for none.
func codeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// TestUnknownPersonIsTold: who counts as none reads why, and what to do; the refusal
// is on record, and what needs no second person is theirs as ever.
func TestUnknownPersonIsTold(t *testing.T) {
	d := &fake{}
	s := NewServer(d, roles, nil, wire.Fence)
	code, body := requestOf(t, s, root, http.MethodPost, "/v1/nodes/n-1/fence", `{"reason":"disk"}`)
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, body, "root (uid 0) without a login does not identify a person")
	assert.Contains(t, body, "log in under your own name")
	assert.Equal(t, []string{CodePersonUnknown}, d.codes)
	require.Empty(t, d.orders)
	code, _ = requestOf(t, s, root, http.MethodPost, "/v1/pause", `{"reason":"storm"}`)
	assert.Equal(t, http.StatusOK, code)
}

func TestActorTellsTheLogin(t *testing.T) {
	assert.Equal(t, "root (uid 0)", root.Actor())
	assert.Equal(t, "anna (uid 4003)", byLogin(admin, admin).Actor())
	assert.Equal(t, "anna (uid 4003) as root (uid 0)", byLogin(admin, root).Actor())
	assert.Equal(t, "uid 4009 as uid 4010", byLogin(Peer{UID: 4009}, Peer{UID: 4010}).Actor())
}

// TestLoginGivesNoRole: roles are those of the user, whoever logged in.
func TestLoginGivesNoRole(t *testing.T) {
	assert.Equal(t, wire.Nobody, roles.Of(byLogin(admin, other)))
	assert.Equal(t, wire.Admin, roles.Of(byLogin(other, root)))
}

// TestRolesByNumber: fenced.yaml takes a number for a name, as for users whom this host does not know by name.
func TestRolesByNumber(t *testing.T) {
	roles := Roles{Viewer: []string{"user:4711"}, Operator: []string{"group:0"}}
	assert.Equal(t, wire.Viewer, roles.Of(namePeer(4711, 4711)))
	assert.Equal(t, wire.Operator, roles.Of(namePeer(4712, 0)), "its group")
	assert.Equal(t, wire.Nobody, roles.Of(namePeer(4713, 4711)), "the number of a group is none of a user")
}
