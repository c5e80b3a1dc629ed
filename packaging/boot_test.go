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

	"github.com/fenced/fenced/test/asroot"
)

// driver is the unit whose script acts as the administrator.
const driver = `[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/share/script.sh
TimeoutStartSec=900
StandardOutput=file:/share/said
StandardError=file:/share/complained
`

// TestInstalledUnitsUnderSystemd lets a real systemd run what the package installs, as
// it is: the daemon in its sandbox becomes ready and knows its host, people pause it by a unit, it comes
// back when it is killed or hangs, and a bad configuration keeps it down. // I13, I23
func TestInstalledUnitsUnderSystemd(t *testing.T) {
	t.Parallel()
	dir := shareInstalled(t, "administrator.sh")
	sh(t, `mkdir "$1/fenced.service.d" && printf '[Service]\nWatchdogSec=4s\n' >"$1/fenced.service.d/soon.conf"`, filepath.Join(dir, unitDir))

	console, err := boot(t, dir, "administrator.service")
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok checked as the user of the daemon", "ok enabled and ready", "ok it knows the addresses of its host, in its sandbox", "ok paused by the unit", "ok resumed by the unit", "ok back after kill -9",
		"ok back after a hang", "ok paused from the start", "ok reloaded", "ok a bad file fails the reload, and changes nothing", "ok down with a bad configuration",
	}, lines(said), "%s%s", complained, console)
}

// unitDir is where units are, below what boot is given.
const unitDir = "tree/usr/lib/systemd/system"

// shareInstalled makes a directory for boot: what the package installs, with a
// configuration, and administrator.service, which runs a script of testdata.
func shareInstalled(t *testing.T, script string) string {
	t.Helper()
	needBoot(t)
	dir := shareScript(t, script)
	sh(t, `umask 022; cp -R --preserve=mode,links "$2/." "$1/tree/"; cp "$3/fenced.yaml" "$3/nowhere.kubeconfig" "$1/tree/etc/fenced/"`,
		dir, rpmRoot(t), absolute(t, "testdata"))
	return dir
}

// shareScript makes a directory for boot with administrator.service and the script that it
// runs, and nothing that is installed.
func shareScript(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	sh(t, `umask 022; chmod 755 "$1"; mkdir -p "$1/$4"; cp "$2/$3" "$1/script.sh"; cp "$2/kit.sh" "$1/"`, dir, absolute(t, "testdata"), script, unitDir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, unitDir, "administrator.service"), []byte(driver), 0o644))
	return dir
}

// needBoot skips the test where no systemd of its own can be booted.
func needBoot(t *testing.T) {
	t.Helper()
	asroot.Need(t, "boot a systemd of its own")
	need(t, "unshare", "util-linux")
	need(t, "ip", "iproute2")
	need(t, "systemd-sysusers", "systemd")
}

// absolute is the path for a program that is run elsewhere.
func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	return path
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

// What boot takes into the environment of boot.sh.
const (
	hostNet = "BOOT_NET=host"
	treeOf  = "BOOT_TREE="
)

// boot runs a systemd until a unit of dir has ended, and gives what the boot said.
func boot(t *testing.T, dir, unit string, env ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, absolute(t, "testdata/boot.sh"), dir, unit)
	cmd.Env = append(os.Environ(), env...)
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
