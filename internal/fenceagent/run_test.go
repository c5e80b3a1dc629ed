package fenceagent

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/pace"
)

// gone says whether no process runs with this word in its command line.
func gone(t *testing.T, word string) func() bool {
	t.Helper()
	return func() bool {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		require.NoError(t, err)
		for _, path := range lines {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), word) {
				return false
			}
		}
		return true
	}
}

// whenThere is the time of a caller who goes when a file is there.
func whenThere(t *testing.T, file string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if _, err := os.Stat(file); err == nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return ctx
}

// Neither a hanging agent nor its children outlive the context.
func TestHangingAgentIsKilledWhole(t *testing.T) {
	t.Parallel()
	started := filepath.Join(t.TempDir(), "started")
	c := client(t, agent(t, `sleep 3141.5 & : >`+started+`; sleep 3141.5`), device())
	_, err := c.Describe(t.Context())
	require.NoError(t, err)
	begin := time.Now()
	_, err = c.Send(whenThere(t, started), bmc.CommandOff)
	assert.Equal(t, bmc.SentMaybe, bmctest.Failed(t, err, bmc.KindUnreachable).Sent)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(begin), pace.Hang)
	assert.Eventually(t, gone(t, "3141.5"), time.Minute, 10*time.Millisecond)
}

// What an agent leaves running in its group ends with it.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	c := client(t, agent(t, `sleep 2718.2 & echo Status: OFF; exit 2`), device())
	begin := time.Now()
	assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	assert.Less(t, time.Since(begin), pace.Hang)
	assert.Eventually(t, gone(t, "2718.2"), time.Minute, 10*time.Millisecond)
}

// Somebody who left the process group and holds the output keeps nobody waiting.
func TestOutputHeldByAnotherSession(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	c := client(t, agent(t, `setsid sleep 300 & echo $! >`+file+`; echo Status: ON`), device())
	t.Cleanup(func() { // nobody else ends it
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	})
	begin := time.Now()
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
	assert.Less(t, time.Since(begin), pace.Hang)
}

func TestFloodIsKilled(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"", " >&2"} {
		c := client(t, agent(t, `while :; do echo Status: OFF; done`+to), device())
		begin := time.Now()
		_, err := c.Read(t.Context())
		assert.Contains(t, bmctest.Failed(t, err, bmc.KindProtocol).Error(), "too much output")
		assert.Less(t, time.Since(begin), pace.Hang)
	}
}

func TestAgentThatReadsNothing(t *testing.T) {
	t.Parallel()
	d := device()
	d.Parameters["community"] = strings.Repeat("x", 200<<10) // more than a pipe holds
	c := client(t, raw(t, header+"echo Status: ON\n"), d)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
}

func TestAgentEndedBySignal(t *testing.T) {
	t.Parallel()
	c := client(t, agent(t, `echo Status: OFF; kill -9 $$`), device())
	_, err := c.Read(t.Context())
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindProtocol).Error(), "signal")
}

// The secrets are on stdin, and in nothing that others could see.
func TestSecretsOnlyOnStdin(t *testing.T) {
	t.Setenv("FENCED_CANARY", "of-the-daemon")
	out := t.TempDir()
	c := client(t, agent(t, `echo "$input" >`+out+`/stdin; cat /proc/$$/environ >`+out+`/environ; cat /proc/$$/cmdline >`+out+`/cmdline; exit 0`), device())
	require.Equal(t, bmc.On, bmctest.Read(t, c).State)
	file := func(name string) string {
		text, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		return string(text)
	}
	assert.Equal(t, "action=status\nip=192.0.2.1\npassword=c4nary-secret\nplug=7\nusername=admin\n", file("stdin"))
	assert.NotContains(t, file("environ")+file("cmdline"), "c4nary")
	assert.Equal(t, "PATH=/usr/sbin:/usr/bin:/sbin:/bin\x00LANG=C\x00", file("environ"))
}

func TestNotStartedIsNotSent(t *testing.T) {
	t.Parallel()
	p := agent(t, `exit 0`)
	c := client(t, p, device())
	_, err := c.Describe(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Send(ctx, bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindUnreachable).Sent)

	require.NoError(t, os.Remove(filepath.Join(p.dirs[0], "fence_test")))
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindUnsupported).Sent)
}
