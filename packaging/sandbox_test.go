package packaging_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// replaced is what of the unit is another for the test: the program, and how its
// end is taken. Every line of the sandbox stays.
const replaced = `[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=exec
ExecStart=
ExecStart=/share/sandbox
Restart=no
WatchdogSec=0
StandardOutput=file:/share/said
StandardError=file:/share/complained
`

// TestUnitLetsEveryDriverWork runs a program in the sandbox of the shipped unit,
// under a real systemd, that switches hosts through each kind of driver:
// ipmitool, Python with its own HTTP, and agents that talk on a terminal.
func TestUnitLetsEveryDriverWork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can boot a systemd of its own")
	}
	need(t, "unshare", "util-linux")
	need(t, "ip", "iproute2")
	need(t, "systemd-sysusers", "systemd")
	need(t, "ipmitool", "ipmitool")
	need(t, "ipmi_sim", "openipmi")
	need(t, "fence_ipmilan", "fence-agents")
	dir := t.TempDir()
	sh(t, `cp systemd/fenced.service systemd/fenced.sysusers "$1" && chmod 755 "$1"`, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fenced.conf"), []byte(replaced), 0o644))
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "sandbox"), "./sandbox")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)

	console, err := boot(t, dir)
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok confined", "ok simulators", "ok ipmi", "ok redfish", "ok bmclib ipmitool", "ok bmclib gofish",
		"ok fence_ipmilan", "ok fence_redfish", "ok fence_alom on a terminal",
		"ok a hung agent is ended", "ok nothing is left behind",
	}, lines(said), "%s%s", complained, console)
}

// read gives a file that systemd wrote for the unit; one that never started has none.
func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return string(text)
}

// boot runs a systemd until the unit of dir has ended, and gives what the boot said.
func boot(t *testing.T, dir string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	script, err := filepath.Abs("testdata/boot.sh")
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, script, dir)
	// The first process of the namespace ends with this one, and all others with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	t.Cleanup(func() { removeCgroup(t, dir) })
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// removeCgroup removes what boot.sh made outside of its namespaces.
func removeCgroup(t *testing.T, dir string) {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	sh(t, `find "$1" -depth -type d -exec rmdir {} + && if mountpoint -q "$2/v2"; then umount "$2/v2"; fi`, strings.TrimSpace(string(name)), dir)
}
