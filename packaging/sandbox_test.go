package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

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
	needBoot(t)
	need(t, "ipmitool", "ipmitool")
	need(t, "ipmi_sim", "openipmi")
	need(t, "fence_ipmilan", "fence-agents")
	dir := t.TempDir()
	sh(t, `umask 022; chmod 755 "$1"; cd "$1"; mkdir -p tree/usr/lib/{sysusers.d,systemd/system/fenced.service.d}
		cp "$2/fenced.sysusers" tree/usr/lib/sysusers.d/fenced.conf
		cp "$2/fenced.service" tree/usr/lib/systemd/system/`, dir, absolute(t, "systemd"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tree/usr/lib/systemd/system/fenced.service.d/sandbox.conf"), []byte(replaced), 0o644))
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "sandbox"), "./sandbox")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)

	console, err := boot(t, dir, "fenced.service")
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok confined", "ok simulators", "ok ipmi", "ok redfish", "ok bmclib ipmitool", "ok bmclib gofish",
		"ok fence_ipmilan", "ok fence_redfish", "ok fence_alom on a terminal",
		"ok a hung agent is ended", "ok nothing is left behind",
	}, lines(said), "%s%s", complained, console)
}
