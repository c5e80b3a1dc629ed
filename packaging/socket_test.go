package packaging_test

import (
	"os"
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
		"ok the group and nobody else has the socket", "ok another path is told", "ok stopped means stopped",
	}, lines(said), "%s%s", complained, console)
}

// TestSocketUnitIsWhereFencectlLooks: a socket elsewhere would be answered and never called.
func TestSocketUnitIsWhereFencectlLooks(t *testing.T) {
	unit, err := os.ReadFile("systemd/fenced.socket")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^ListenStream=`+config.Default().Control.Socket+`$`, string(unit))
	require.Regexp(t, `(?m)^SocketGroup=`+config.ViewGroup+`$`, string(unit))
	require.Regexp(t, `(?m)^SocketMode=0660$`, string(unit))
}
