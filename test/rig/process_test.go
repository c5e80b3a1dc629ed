package rig

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/test/certs"
	"github.com/fenced/fenced/test/must"
	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

// orphanMaker makes this test binary the parent in TestChildrenDieWithUs.
const orphanMaker = "FENCED_RIG_ORPHAN_MAKER"

func TestChildrenDieWithUs(t *testing.T) {
	if dir := os.Getenv(orphanMaker); dir != "" {
		p := must.Do(startProcess(dir, "/bin/sleep", []string{"60"}))(t)
		fmt.Printf("child=%d\n", p.cmd.Process.Pid)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildrenDieWithUs$")
	cmd.Env = append(os.Environ(), orphanMaker+"="+t.TempDir())
	out, err := cmd.Output()
	require.Error(t, err, "the parent killed itself")
	_, after, found := strings.Cut(string(out), "child=")
	require.True(t, found, "it said: %s", out)
	pid := must.Do(strconv.Atoi(strings.TrimSpace(after)))(t)
	require.Eventually(t, func() bool { return !running(pid) }, time.Minute, 20*time.Millisecond, "the child outlived us")
}

// running is false for a zombie too, which nobody may be there to reap.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestFailedStartShowsTheLog(t *testing.T) {
	dir := t.TempDir()
	ca := must.Do(certs.NewAuthority())(t)
	c := &ControlPlane{ca: ca}
	c.dir.path = dir
	script := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho no such option: $1\nexit 3\n"), 0o700))
	p := must.Do(startProcess(dir, script, []string{"--bad"}))(t)
	err := c.await(t.Context(), p, "http://127.0.0.1:1/", nil)
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorContains(t, err, "no such option: --bad")
	assert.ErrorContains(t, p.died(), "broken ended")
}

func TestMemory(t *testing.T) {
	now, most := must.Do(Memory(os.Getpid(), "VmRSS"))(t), must.Do(Memory(os.Getpid(), "VmHWM"))(t)
	assert.Greater(t, now, int64(1<<20), "in bytes")
	assert.Less(t, most, int64(1<<40), "in bytes")
	_, err := Memory(os.Getpid(), "VmWhat")
	assert.ErrorContains(t, err, "VmWhat")
}

func TestReservedPortRefusesAndIsNotGivenAway(t *testing.T) {
	p := must.Do(reservePort())(t)
	defer p.release()
	_, err := net.Dial("tcp", p.address())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	l, err := net.Listen("tcp", p.address())
	if err == nil {
		_ = l.Close()
	}
	require.ErrorIs(t, err, syscall.EADDRINUSE, "a program without port sharing cannot take it")
}

func TestOneBuildAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "build.lock")
	unlock := must.Do(lock(t.Context(), path, &bytes.Buffer{}))(t)

	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var said bytes.Buffer
	_, err := lock(short, path, &said)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Contains(t, said.String(), "waiting")

	unlock()
	unlock = must.Do(lock(t.Context(), path, &said))(t)
	unlock()
}

func TestAuditLogInTheMiddleOfALine(t *testing.T) {
	c := &ControlPlane{}
	c.dir.path = t.TempDir()
	line := func(verb, name string, code int) string {
		return fmt.Sprintf(`{"verb":%q,"user":{"username":"u"},"objectRef":{"resource":"nodes","name":%q},`+
			`"responseStatus":{"code":%d},"requestObject":{"preconditions":{"uid":"1","resourceVersion":"7"}}}`, verb, name, code)
	}
	log := line("delete", "a", 200) + "\n" + line("delete", "a", 409) + "\n" + line("update", "a", 200) + "\n" +
		line("delete", "b", 200) + "\n" + line("delete", "a", 200)[:60]
	require.NoError(t, os.WriteFile(c.file("audit.log"), []byte(log), 0o600))
	got := must.Do(c.NodeDeletions("a"))(t)
	assert.Equal(t, []Deletion{{User: "u", Name: "a", UID: "1", ResourceVersion: "7"}}, got)
}

var (
	secrets  = schema.GroupResource{Resource: "secrets"}
	timedOut = apierrors.NewTimeoutError("request did not complete", 0)
	exists   = apierrors.NewAlreadyExists(secrets, "a")
)

func TestBusyServerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, row := range map[string]struct {
			answers  []error // to create
			requests int
			want     error
			read     bool // by get
		}{
			"at once":                           {answers: []error{nil}, requests: 1},
			"when it has time":                  {answers: []error{timedOut, timedOut, nil}, requests: 3},
			"what the first request has made":   {answers: []error{timedOut, exists}, requests: 2, read: true},
			"what was there before":             {answers: []error{exists}, requests: 1, want: exists},
			"a refusal is not waited for":       {answers: []error{apierrors.NewForbidden(secrets, "a", nil)}, requests: 1, want: apierrors.NewForbidden(secrets, "a", nil)},
			"a refusal after a time-out, too":   {answers: []error{timedOut, apierrors.NewBadRequest("no")}, requests: 2, want: apierrors.NewBadRequest("no")},
			"what hangs is not waited for long": {want: timedOut, requests: 300},
		} {
			requests := 0
			create := func() (string, error) {
				if requests++; requests > len(row.answers) {
					return "", timedOut
				}
				return "created", row.answers[requests-1]
			}
			got, err := createWhileBusy(t.Context(), create, func() (string, error) { return "read", nil })
			assert.InDelta(t, row.requests, requests, float64(row.requests/100), name) // the last second may be either
			assert.Equal(t, row.want, err, name)
			assert.Equal(t, row.read, got == "read", name)
		}
	})
}

func TestBusyServerIsNotWaitedForAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	requests := 0
	err := WhileBusy(ctx, func() error { requests++; return timedOut })
	require.ErrorIs(t, err, timedOut)
	assert.Equal(t, 1, requests)
}

// The programs are kept by a version that is written twice.
func TestVersionIsThatOfTheModule(t *testing.T) {
	root := must.Do(Root())(t)
	for module, line := range map[string]string{
		"clusterapi":   "require " + clusterAPIModule + " " + clusterAPIVersion + "\n",
		"controlplane": "k8s.io/kubernetes " + kubernetesVersion + " ",
	} {
		text := must.Do(os.ReadFile(filepath.Join(root, "test", module, "go.mod")))(t)
		assert.Contains(t, string(text), line)
	}
}

// A version of the Cluster API whose main.go is another one is not built: its webhooks could listen on
// all addresses.
func TestUnknownMainIsNotBuilt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "main.go")
	known := clusterAPIEdits[0].from + "\n" + clusterAPIEdits[1].from
	for text, want := range map[string]string{
		known:                                  clusterAPIEdits[0].to + "\n" + clusterAPIEdits[1].to,
		clusterAPIEdits[1].from:                "",
		known + "\n" + clusterAPIEdits[0].from: "",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		err := editMain(path)
		if want == "" {
			assert.ErrorContains(t, err, "times, not once")
			continue
		}
		require.NoError(t, err)
		edited := must.Do(os.ReadFile(path))(t)
		assert.Equal(t, want, string(edited))
	}
}

// builder is a go command that makes an empty file of what it is to build, and writes down which; else it is the real one.
const builder = `#!/bin/sh
if [ "$1" != build ]; then exec %s "$@"; fi
for last; do :; done
echo "$last" >>%[2]s
while [ "$1" != -o ]; do shift; done
: >"$2"
`

// A program comes from the directory that is named, else from the cache, else it is built, and then it is in the cache. Nobody builds a
// scheduler for a control plane.
func TestProgramsComeFromAssetsThenTheCacheThenSource(t *testing.T) {
	dir := t.TempDir()
	assets, bin, log := filepath.Join(dir, "assets"), filepath.Join(dir, "bin"), filepath.Join(dir, "built")
	for _, d := range []string{assets, bin} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), fmt.Appendf(nil, builder, must.Do(exec.LookPath("go"))(t), log), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(assets, "etcd"), nil, 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	get := func() (map[string]string, []string) {
		require.NoError(t, os.WriteFile(log, nil, 0o600))
		var progress bytes.Buffer
		paths := must.Do(Programs(t.Context(), []string{"", assets, bin}, &progress))(t)
		for _, path := range paths {
			assert.FileExists(t, path)
		}
		assert.Contains(t, progress.String(), "taking "+filepath.Join(assets, "etcd"))
		return paths, strings.Fields(string(must.Do(os.ReadFile(log))(t)))
	}

	first, compiled := get()
	assert.Equal(t, []string{apiServer.pkg, manager.pkg}, compiled)
	assert.Equal(t, filepath.Join(assets, "etcd"), first["etcd"])
	assert.Contains(t, first["kube-apiserver"], "cache")

	again, compiled := get()
	assert.Empty(t, compiled, "they are in the cache")
	assert.Equal(t, first, again)

	require.NoError(t, os.WriteFile(filepath.Join(assets, "kube-apiserver"), nil, 0o700))
	named, compiled := get()
	assert.Empty(t, compiled)
	assert.Equal(t, filepath.Join(assets, "kube-apiserver"), named["kube-apiserver"], "although the cache has one")
	assert.Equal(t, first["kube-controller-manager"], named["kube-controller-manager"])

	require.NoError(t, os.WriteFile(log, nil, 0o600))
	must.Do(Binaries(t.Context(), &bytes.Buffer{}))(t)
	assert.Equal(t, []string{etcd.pkg, scheduler.pkg}, strings.Fields(string(must.Do(os.ReadFile(log))(t))), "what the tests need besides")
}
