package main

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// TestWatchdogInAContainer: there NOTIFY_SOCKET and WATCHDOG_USEC are set, and WATCHDOG_PID, which is of another process, is
// not (packaging/image/fenced.container). The daemon sends its pings.
func TestWatchdogInAContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = systemd.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000000")
	t.Setenv("WATCHDOG_PID", "")

	newNotifier(zap.NewNop()).beat()

	said := make([]byte, 64)
	n, err := systemd.Read(said)
	require.NoError(t, err)
	require.Equal(t, "WATCHDOG=1", string(said[:n]))
}
