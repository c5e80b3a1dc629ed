package k8swatch

import (
	"context"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// dialAs is dial for an installation.
func dialAs(t *testing.T, c *rig.ControlPlane, storeID string) *Cluster {
	t.Helper()
	path, err := c.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	k, err := New(Config{Name: "rig", Kubeconfig: path, StoreID: storeID, FreshEvery: time.Second}, zap.NewNop())
	require.NoError(t, err)
	return k
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

// conditions is a list of conditions as it is in the API.
type conditions []any

func (l conditions) find(kind string) map[string]any {
	for _, c := range l {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return m
		}
	}
	return nil
}

func (l conditions) status(kind string) string {
	text, _ := l.find(kind)["status"].(string)
	return text
}

// The two styles of conditions that the Cluster API writes; OpenShift has only the second.
const (
	standard = iota
	severe
)

// conditionsOf are the conditions of an object, by their style.
func conditionsOf(u *unstructured.Unstructured) map[int]conditions {
	paths := map[int][]string{severe: {"conditions"}}
	switch u.GetAPIVersion() {
	case "cluster.x-k8s.io/v1beta2":
		paths = map[int][]string{standard: {"conditions"}, severe: {"deprecated", "v1beta1", "conditions"}}
	case "cluster.x-k8s.io/v1beta1":
		paths[standard] = []string{"v1beta2", "conditions"}
	}
	found := map[int]conditions{}
	for style, path := range paths {
		list, _, _ := unstructured.NestedSlice(u.Object, append([]string{"status"}, path...)...)
		found[style] = list
	}
	return found
}

// joinedMaps has the entries of both.
func joinedMaps(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
