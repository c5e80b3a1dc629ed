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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// orphanMaker makes this test binary the parent in TestChildrenDieWithUs.
const orphanMaker = "FENCED_RIG_ORPHAN_MAKER"

func TestChildrenDieWithUs(t *testing.T) {
	if dir := os.Getenv(orphanMaker); dir != "" {
		p, err := startProcess(dir, "/bin/sleep", []string{"60"})
		require.NoError(t, err)
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
	pid, err := strconv.Atoi(strings.TrimSpace(after))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !running(pid) }, time.Minute, 20*time.Millisecond, "the child outlived us")
}

// running is false for a zombie too, which nobody may be there to reap.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestFailedStartShowsTheLog(t *testing.T) {
	dir := t.TempDir()
	ca, err := newAuthority()
	require.NoError(t, err)
	c := &ControlPlane{ca: ca}
	c.dir.path = dir
	script := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho no such option: $1\nexit 3\n"), 0o700))
	p, err := startProcess(dir, script, []string{"--bad"})
	require.NoError(t, err)
	err = c.await(t.Context(), p, "http://127.0.0.1:1/", nil)
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorContains(t, err, "no such option: --bad")
	assert.ErrorContains(t, p.died(), "broken ended")
}

func TestReservedPortRefusesAndIsNotGivenAway(t *testing.T) {
	p, err := reservePort()
	require.NoError(t, err)
	defer p.release()
	_, err = net.Dial("tcp", p.address())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	l, err := net.Listen("tcp", p.address())
	if err == nil {
		_ = l.Close()
	}
	require.ErrorIs(t, err, syscall.EADDRINUSE, "a program without port sharing cannot take it")
}

func TestOneBuildAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "build.lock")
	unlock, err := lock(t.Context(), path, &bytes.Buffer{})
	require.NoError(t, err)

	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var said bytes.Buffer
	_, err = lock(short, path, &said)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Contains(t, said.String(), "waiting")

	unlock()
	unlock, err = lock(t.Context(), path, &said)
	require.NoError(t, err)
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
	got, err := c.NodeDeletions("a")
	require.NoError(t, err)
	assert.Equal(t, []Deletion{{User: "u", Name: "a", UID: "1", ResourceVersion: "7"}}, got)
}
