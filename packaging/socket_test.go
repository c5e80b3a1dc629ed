package packaging_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/config"
)

// TestSocketActivation: with fenced.socket under a real systemd a call starts the daemon,
// no call fails while the daemon restarts, who may use the socket stays the same, and both
// units can be stopped for good.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	dir := shareInstalled(t, "socket.sh")
	console, err := boot(t, dir, "administrator.service")
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok disabled as installed", "ok a call starts the daemon", "ok a call is answered after kill -9", "ok no call fails while the daemon restarts",
		"ok the daemon cannot lead systemd to another file",
		"ok the group and nobody else has the socket", "ok another path is told", "ok stopped means stopped",
		"ok without the unit the daemon makes its socket again",
	}, lines(said), "%s%s", complained, console)
}

// TestSocketsOfSystemdAreInDirectoriesOfRoot: systemd, as root, gives a socket to its user and group by the path, and follows links.
// Whoever owned the directory could have any file.
func TestSocketsOfSystemdAreInDirectoriesOfRoot(t *testing.T) {
	units, err := filepath.Glob("systemd/*.socket")
	require.NoError(t, err)
	require.Len(t, units, 2)
	for _, name := range units {
		unit := readFile(t, name)
		listens := regexp.MustCompile(`(?m)^Listen\w+=(.*)/[^/]+$`).FindAllStringSubmatch(unit, -1)
		require.Len(t, listens, 1, name)
		if dir := listens[0][1]; dir != "/run" {
			require.Contains(t, unit, "\nExecStartPre=/usr/bin/install -d -o root -g root -m 00755 "+dir+"\n", name)
			require.Regexp(t, `(?m)^ExecStartPre=\+/bin/sh -c 'systemctl --quiet is-active `+filepath.Base(name)+` \|\| install -d -o fenced \S+ \S+ -m 2755 `+dir+` `,
				readFile(t, "systemd/fenced.service"), "the daemon's unit must leave it so")
		}
	}
}

// TestSocketUnitIsWhereFencectlLooks: a socket elsewhere would be answered and never called.
func TestSocketUnitIsWhereFencectlLooks(t *testing.T) {
	unit, err := os.ReadFile("systemd/fenced.socket")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^ListenStream=`+config.Default().Control.Socket+`$`, string(unit))
	require.Regexp(t, `(?m)^SocketGroup=`+config.ViewGroup+`$`, string(unit))
	require.Regexp(t, `(?m)^SocketMode=0660$`, string(unit))
}
