package packaging_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDaemonsUserLeavesLinksForRoot lets a real systemd and a real root work in the
// directory of the daemon's user, who left links, pipes and other directories there:
// nothing that is root's changes its owner, its mode or a byte, each refusal says what
// it found, and what is asked for in good faith works. // I23
func TestDaemonsUserLeavesLinksForRoot(t *testing.T) {
	need(t, "runuser", "util-linux")
	dir := shareInstalled(t, "links.sh")
	// One pause begins with the boot, before there is a daemon or its directory. What the units say goes where the script
	// can read it: no journal runs there.
	sh(t, `umask 022; cd "$1"; rm -r ../../../../var/lib/fenced; mkdir fenced-pause.service.d sysinit.target.wants
		printf '[Unit]\nBefore=sysinit.target\n[Service]\nStandardError=append:/share/unit-said\n' >fenced-pause.service.d/early.conf
		ln -s ../fenced-pause.service sysinit.target.wants/`, filepath.Join(dir, unitDir))

	console, err := boot(t, dir, "administrator.service")
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok paused early in the boot, before the daemon ever ran",
		"ok resumed",
		"ok paused while the daemon hangs",
		"ok pause: a link to nothing", "ok pause: a link to root's file", "ok pause: a pipe", "ok pause: a hard link",
		"ok import: a link to nothing", "ok import: a link to root's file", "ok import: a hard link", "ok import: a pipe", "ok import: another directory",
		"ok export: a link to root's file",
		"ok imported, and the daemon runs with it",
		"ok exported",
	}, lines(said), "%s%s%s", complained, read(t, dir, "unit-said"), console)
}
