package packaging_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/scene"
)

// TestInstalledDaemonWhoseLoopHangs: under a real systemd, with the unit's own WatchdogSec=, the deciding loop hangs while a run is
// open, and all other goroutines live: the daemon answers people. systemd's watchdog kills it, and the next one
// ends the same run. The daemon is the package's but for the failpoint that hangs the loop.
func TestInstalledDaemonWhoseLoopHangs(t *testing.T) {
	t.Parallel()
	dir := shareInstalled(t, "hangs.sh")
	daemon := filepath.Join(dir, "tree/usr/libexec/fenced/fenced")
	require.NoError(t, scene.BuildFailpoints(t.Context(), daemon))
	require.NoError(t, os.Chmod(daemon, 0o755))
	s := hungScene(t)
	configure(t, s, dir)
	booted := bootAsync(t, dir)
	hangWhenStarted(t, s, dir, booted)
	awaitFile(t, filepath.Join(dir, "killed"), booted)
	s.Worker(hungNode).Answer()

	requireBooted(t, dir, booted,
		"ok the run is open", "ok the loop hangs, and the daemon answers", "ok systemd has killed it, and the next one has the run", "ok the same run is done")
	requireFencedOnce(t, s)
}
