package k8swatch

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func TestMain(m *testing.M) { os.Exit(rigtest.Main(m)) }

// dial is a Cluster with the rights that the product ships; nobody runs it.
func dial(t *testing.T, c *rig.ControlPlane) *Cluster {
	t.Helper()
	path, err := c.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	return connected(t, path)
}

func connected(t *testing.T, kubeconfig string) *Cluster {
	t.Helper()
	k, err := New(Config{Name: "rig", Kubeconfig: kubeconfig, FreshEvery: time.Second}, zap.NewNop())
	require.NoError(t, err)
	return k
}

// watching runs a Cluster until the test ends, and waits for its first view.
func watching(t *testing.T, c *rig.ControlPlane) *Cluster {
	t.Helper()
	path, err := c.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	k := run(t, path)
	until(t, time.Minute, "the first view", func() bool { return k.View().Synced })
	return k
}

// run runs a Cluster until the test ends.
func run(t *testing.T, kubeconfig string) *Cluster {
	t.Helper()
	k := connected(t, kubeconfig)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return k
}

func until(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, within, 20*time.Millisecond, what)
}
