package look

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
)

// A busy machine delays an API server by many seconds.
func init() { client.RequestTimeout = 20 * time.Second }

// readerOf is a Reader beside a view that nobody runs, joined as k8swatch joins them.
func readerOf(t *testing.T, cfg view.Config) *Reader {
	t.Helper()
	cfg.Name, cfg.FreshEvery = "test", time.Second
	cache, err := view.New(cfg, zap.NewNop())
	require.NoError(t, err)
	servers, shared, leases := cache.Servers(), client.NewSharedReads(), client.NewLeaseClock()
	requests := write.NewRequests(servers, cfg.RequestHolder(), cfg.DecodeRequest)
	return &Reader{Servers: servers, View: cache, Leaders: &Leaders{Leases: leases, Log: zap.NewNop()}, Shared: shared,
		Locks: write.NewNodeLocks(servers.Work, shared, leases, "s", requests.Get), Request: requests.Get,
		Restored: write.NewRuns(servers, nil).Restored, IsMarked: write.IsMarked}
}

// served is a Reader whose API server is this handler: only for answers that a
// real API server does not give on demand.
func served(t *testing.T, h http.HandlerFunc) *Reader {
	t.Helper()
	return readerOf(t, view.Config{Kubeconfig: k8stest.Served(t, h)})
}

// beside is a Reader beside a view that knows these checks, and whose API server is not there.
func beside(t *testing.T, checks ...policy.Check) *Reader {
	t.Helper()
	return readerOf(t, view.Config{Kubeconfig: k8stest.Kubeconfig(t, "http://127.0.0.1:1"), Checks: checks})
}
