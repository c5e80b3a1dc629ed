package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// journald is a systemd-journald of its own, in a namespace whose /run is its own.
type journald struct{ cmd *exec.Cmd }

// startJournald needs root: journald knows no other /run than /run.
func startJournald(t *testing.T) journald {
	t.Helper()
	asroot.Need(t, "run a journald of its own")
	needDebian(t, "unshare", "nsenter", "systemd-cat", "journalctl")
	// The namespace's journald, and no process of this machine, has this /run.
	const script = `set -eu
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/journal /run/log/journal
tr -d - </proc/sys/kernel/random/uuid >/run/machine-id
mount --bind /run/machine-id /etc/machine-id
exec /usr/lib/systemd/systemd-journald`
	j := journald{exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script)}
	complaints, err := os.Create(filepath.Join(t.TempDir(), "journald.stderr"))
	require.NoError(t, err)
	defer complaints.Close()
	j.cmd.Stderr = complaints
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, j.cmd.Start())
	t.Cleanup(func() {
		_ = j.cmd.Process.Kill() // it may be stopped, and keeps nothing
		_ = j.cmd.Wait()
	})
	require.Eventually(t, func() bool { return j.inside(t.Context(), "systemd-cat", "true").Run() == nil },
		patience, 100*time.Millisecond, "journald takes streams: %s", complaints.Name())
	return j
}

// inside is a command beside journald.
func (j journald) inside(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"-t", strconv.Itoa(j.cmd.Process.Pid), "--mount", "--wd=/"}, args...)
	return exec.CommandContext(ctx, "nsenter", args...)
}

// daemon is a program that runs fenced with its stderr at journald, as systemd does.
func (j journald) daemon(t *testing.T) string {
	t.Helper()
	programs, err := builds()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "fenced-in-the-journal")
	text := `#!/bin/sh
exec nsenter -t ` + strconv.Itoa(j.cmd.Process.Pid) + ` --mount systemd-cat -t fenced sh -c '
JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec ` + programs.Fenced + ` "$@"' fenced "$@"
`
	require.NoError(t, os.WriteFile(file, []byte(text), 0o700))
	return file
}

// search is what journalctl finds, oldest first.
func (j journald) search(ctx context.Context, t *testing.T, match ...string) (found []map[string]any) {
	t.Helper()
	out, err := j.inside(ctx, append([]string{"journalctl", "--no-pager", "-q", "-o", "json", "-t", "fenced"}, match...)...).Output()
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		entry := map[string]any{}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &entry))
		found = append(found, entry)
	}
	return found
}

// await polls until journalctl finds something.
func (j journald) await(ctx context.Context, t *testing.T, match ...string) map[string]any {
	t.Helper()
	for ctx.Err() == nil {
		if found := j.search(ctx, t, match...); len(found) > 0 {
			return found[0]
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Failf(t, "nothing in the journal", "%q", match)
	return nil
}

// At three in the morning `journalctl -p warning` says which nodes are not remediated and
// why, and nothing of healthy ones; each node, run and reason can be searched for.
func TestJournalTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	journal := startJournald(t)
	s := set(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "well", Protocol: scene.IPMI}, {Name: "silent", Protocol: scene.IPMI}, {Name: "refused", Protocol: scene.IPMI},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{scene.Metal("2s")},
		Set:    []string{"power.offDeadline=15s", "power.retryInterval=0s"},
	})
	ctx := within(t)
	d, err := s.Launch(journal.daemon(t))
	require.NoError(t, err)
	require.NoError(t, s.WaitSocket(ctx, d))

	well, silent, refused := s.Worker("well"), s.Worker("silent"), s.Worker("refused")
	well.Kubelet.Hang()
	awaitRun(ctx, t, s, well.Name, result(wire.ResultDone))
	silent.Kubelet.Hang()
	awaitOff(t, silent)
	require.NoError(t, goBMC(t, silent).Hang(true))
	held := awaitRun(ctx, t, s, silent.Name, result(wire.ResultHeld))
	refused.KillBMC()
	refused.Kubelet.Hang()
	awaitRefusal(ctx, t, s, refused.Name, "BMCUnreachable")

	e := journal.await(ctx, t, "-p", "err", "FENCED_NODE=silent")
	assert.Equal(t, held.ID, e["FENCED_RUN"])
	assert.Equal(t, held.Reason, e["FENCED_REASON"])
	assert.Equal(t, "Held", e["FENCED_STEP"])
	assert.Equal(t, "3", e["PRIORITY"])
	assert.Equal(t, "fenced", e["_COMM"])
	assert.Contains(t, e["MESSAGE"], "node=silent")
	e = journal.await(ctx, t, "-p", "warning", "FENCED_REASON=BMCUnreachable", "FENCED_EVENT=Refused")
	assert.Equal(t, refused.Name, e["FENCED_NODE"])
	assert.Equal(t, "4", e["PRIORITY"])
	assert.NotEmpty(t, journal.search(ctx, t, "FENCED_RUN="+held.ID, "FENCED_ACTION=SendOff"), "the whole run can be searched for")
	for _, name := range []string{"healthy-1", "healthy-2"} {
		assert.Empty(t, journal.search(ctx, t, "-p", "warning", "FENCED_NODE="+name), name)
	}
	assert.Empty(t, journal.search(ctx, t, "-p", "err", "FENCED_NODE="+well.Name), "nobody is called for a run that ends well")
	assert.NotEmpty(t, journal.search(ctx, t, "-p", "info", "FENCED_NODE="+well.Name))
}

// journald hangs and its socket is full: a node is fenced and comes back all the same, and
// the journal has it all once journald goes on.
func TestFullJournalStopsNoFence(t *testing.T) {
	t.Parallel()
	journal := startJournald(t)
	s := set(t, scene.Options{
		Workers: []scene.Spec{{Name: "dies", Protocol: scene.IPMI}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI}},
		Checks:  []rig.Check{scene.Metal("2s")},
		Set:     []string{"log.level=debug"},
	})
	ctx := within(t)
	d, err := s.Launch(journal.daemon(t))
	require.NoError(t, err)
	require.NoError(t, s.WaitSocket(ctx, d))
	journal.await(ctx, t, "-p", "info")

	require.NoError(t, journal.cmd.Process.Signal(syscall.SIGSTOP))
	journal.fill(t)
	w := s.Worker("dies")
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)

	require.NoError(t, journal.cmd.Process.Signal(syscall.SIGCONT))
	e := journal.await(ctx, t, "FENCED_RUN="+r.ID, "FENCED_STEP=Done")
	assert.Equal(t, w.Name, e["FENCED_NODE"])
}

// fill sends to the socket of a journald that does not read, until it is full.
func (j journald) fill(t *testing.T) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	defer syscall.Close(fd)
	socket := &syscall.SockaddrUnix{Name: "/proc/" + strconv.Itoa(j.cmd.Process.Pid) + "/root/run/systemd/journal/socket"}
	for err == nil {
		err = syscall.Sendto(fd, []byte("MESSAGE=noise\nSYSLOG_IDENTIFIER=noise\n"), 0, socket)
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
}
