package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
)

// askedReload is fenced --reload, as systemctl reload runs it.
func (r *reloadable) askedReload() (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = runDaemon([]string{"--config", filepath.Join(r.dir, "fenced.yaml"), "--reload"}, &out, &errs)
	return status, out.String(), errs.String()
}

// fenced --reload ends when the daemon has taken the files in, and fails with the reason when a file is bad, and when
// the daemon refuses what the files alone do not show to be wrong. systemd is told of nothing: it waits for the program, and a
// READY would end the job before that fails.
func TestAskedReloadFailsWithTheReason(t *testing.T) {
	r := prepareReloadable(t)
	r.writeClusters(both, "")
	store, err := boltstore.Open(filepath.Join(r.dir, "state.db"))
	require.NoError(t, err)
	_, err = state.SaveRun(t.Context(), store, remediate.Begin(remediate.Run{ID: "r-1", Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete,
		Target: remediate.Target{Cluster: "lab", Node: "n-1", Host: "lab/n-1"}}, time.Now()))
	require.NoError(t, err)
	require.NoError(t, store.Close())
	r.start()
	r.toldSystemd("READY=1")

	r.writeClusters(both, "log: {level: debug}\n")
	status, stdout, stderr := r.askedReload()
	assert.Equal(t, exitOK, status, stderr)
	assert.Equal(t, "reloaded: took in log.level\n", stdout)
	assert.Equal(t, zapcore.DebugLevel, r.level.Level())

	r.write("fenced.yaml", r.text("log: {level: error}\n"))
	status, stdout, stderr = r.askedReload()
	assert.Equal(t, exitRunTime, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "fenced: reload fenced: the reload is refused, and the configuration stays as it was: cluster lab cannot be removed while a run is open in it (r-1 on n-1)")
	assert.Equal(t, zapcore.DebugLevel, r.level.Level())

	r.write("fenced.yaml", r.text("log: {level: loud}\n"))
	status, _, stderr = r.askedReload()
	assert.Equal(t, exitConfig, status)
	assert.Contains(t, stderr, "log.level")

	list, err := r.events.After(t.Context(), 0)
	require.NoError(t, err)
	told := 0
	for _, e := range list {
		if e.Type == event.Reloaded {
			told++
			assert.NotEmpty(t, e.Actor)
			assert.Equal(t, "fenced --reload", e.Why)
		}
	}
	assert.Equal(t, 2, told)
	for end := time.After(100 * time.Millisecond); ; { // it is there already
		select {
		case said := <-r.systemd:
			assert.NotContains(t, said, "RELOADING")
			assert.NotContains(t, said, "READY")
			continue
		case <-end:
		}
		break
	}
}

// A daemon that cannot be asked, because the files name another socket than that of its start, is told by a signal,
// if systemd says who it is; so is one of an older version. Else the reload fails.
func TestAskedReloadWithoutASocket(t *testing.T) {
	r := prepareReloadable(t)
	t.Setenv(mainPID, "")
	status, _, stderr := r.askedReload()
	assert.Equal(t, exitRunTime, status)
	assert.Contains(t, stderr, "reload fenced: fenced is not reachable at ")
	assert.Contains(t, stderr, "systemctl status fenced")

	for _, nobody := range []string{"x", "0", "1", "-1"} {
		t.Setenv(mainPID, nobody)
		status, _, stderr = r.askedReload()
		assert.Equal(t, exitRunTime, status)
		assert.Contains(t, stderr, "names no process")
	}
	for _, older := range []bool{false, true} {
		signalled(t, r, older)
	}
}

// signalled has a stand-in of a daemon told by a signal.
func signalled(t *testing.T, r *reloadable, older bool) {
	t.Helper()
	file := filepath.Join(r.dir, "got")
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP) // a shell cannot trap what is ignored where the tests run, as under nohup
	defer signal.Stop(caught)
	daemon := exec.CommandContext(t.Context(), "sh", "-c", `trap 'echo HUP >"$1"; exit' HUP; echo; while :; do sleep 0.1; done`, "sh", file)
	ready, err := daemon.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, daemon.Start())
	_, err = ready.Read(make([]byte, 1))
	require.NoError(t, err)
	t.Setenv(mainPID, fmt.Sprint(daemon.Process.Pid))
	if older { // its API has no such order
		ln, err := net.Listen("unix", filepath.Join(r.dir, "s.sock"))
		require.NoError(t, err)
		old := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":"NotFound","message":"no route"}`))
		})}
		go func() { _ = old.Serve(ln) }()
		defer func() { assert.NoError(t, old.Close()) }()
	}
	status, stdout, stderr := r.askedReload()
	assert.Equal(t, exitOK, status, stderr)
	assert.Contains(t, stdout, "the daemon was told by a signal")
	require.NoError(t, daemon.Wait())
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "HUP\n", string(got))
	require.NoError(t, os.Remove(file))
}
