package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newerRelease has systemd 257, as RHEL 10 has. Every other test here boots the systemd of
// this machine, in CI 252 as in RHEL 9.
const newerRelease = "trixie"

// newerTree is what boot takes to boot that release.
func newerTree(t *testing.T) string {
	t.Helper()
	need(t, "debootstrap", "debootstrap")
	tree, err := exec.Command("testdata/tree.sh", newerRelease).Output()
	require.NoError(t, err, "make a tree of Debian %s", newerRelease)
	return treeOf + strings.TrimSpace(string(tree))
}

// TestInstalledUnitsUnderNewerSystemd: the newer systemd has nothing to say against the
// units, and runs the installed daemon as the older one does.
func TestInstalledUnitsUnderNewerSystemd(t *testing.T) {
	t.Parallel()
	needBoot(t)
	tree := newerTree(t)
	dir := shareInstalled(t, "newer.sh")
	sh(t, `cp testdata/administrator.sh "$1/"; mkdir "$1/$2/fenced.service.d" && printf '[Service]\nWatchdogSec=4s\n' >"$1/$2/fenced.service.d/soon.conf"`, dir, unitDir)
	require.NoError(t, os.Chmod(filepath.Join(dir, "administrator.sh"), 0o755))
	console, err := boot(t, dir, "administrator.service", tree)
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok it is systemd 257", "ok the units are understood", "ok the units are confined",
		"ok checked as the user of the daemon", "ok enabled and ready", "ok it knows the addresses of its host, in its sandbox", "ok paused by the unit", "ok resumed by the unit", "ok back after kill -9",
		"ok back after a hang", "ok paused from the start", "ok reloaded", "ok a bad file fails the reload, and changes nothing", "ok down with a bad configuration",
	}, lines(said), "%s%s", complained, console)
}

// TestLifeOfThePackageUnderNewerSystemd lets rpm install, upgrade and erase the package. The upgrade in mid-run and the downgrade are those of TestLifeOfThePackage.
func TestLifeOfThePackageUnderNewerSystemd(t *testing.T) {
	t.Parallel()
	needBoot(t)
	tree := newerTree(t)
	dir := shareScript(t, "rpm.sh")
	older := rpmFile(t)
	newer, err := builtNewVersion()
	require.NoError(t, err)
	sh(t, `umask 022; cp "$2" "$3"/*.rpm testdata/fenced.yaml testdata/nowhere.kubeconfig "$1/"; rm "$1"/*.src.rpm`, dir, older, newer)
	console, err := boot(t, dir, "administrator.service", tree)
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok it is systemd 257 and rpm 4.20", "ok installed: nothing enabled, nothing started", "ok started", "ok upgraded: restarted, and the configuration kept",
		"ok erased: stopped, state and changed configuration kept",
	}, lines(said), "%s%s", complained, console)
}
