package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state/boltstore"
)

// A monitor that reads no metrics asks two questions: does the daemon decide, and could it
// fence now.
func TestHealthAndReadiness(t *testing.T) {
	store, err := boltstore.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	defer store.Close()
	d := &fenced{metrics: newMetrics("1")}
	d.engine, err = engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}})
	require.NoError(t, err)
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		d.pages().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		code, text := ask(path)
		assert.Equal(t, http.StatusServiceUnavailable, code, path)
		assert.Equal(t, "the daemon is starting", text)
	}
	d.health.beat()
	for _, path := range []string{"/healthz", "/readyz"} {
		code, text := ask(path)
		assert.Equal(t, http.StatusOK, code, path)
		assert.Equal(t, "ok", text)
	}
	d.health.last.Store(time.Now().Add(-time.Hour).UnixNano())
	code, text := ask("/healthz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, text, "the daemon hangs")
	code, _ = ask("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
}

func TestNotReadyNamesEachCluster(t *testing.T) {
	assert.Empty(t, notReady([]engine.ClusterStatus{{Name: "a"}}))
	assert.Equal(t, "a: the view of the cluster is not good; fencectl status says why\nb: no instance may act here; fencectl status says why\nd: nothing begins here, because a file has an error; fencectl status says why",
		notReady([]engine.ClusterStatus{{Name: "a", ViewBad: "secret.example: refused"}, {Name: "b", Idle: "nobody owns it"}, {Name: "c"}, {Name: "d", FilesRefused: "secret.yaml:1"}}))
}

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
