package k8swatch

import (
	"context"
	"maps"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func TestMain(m *testing.M) { os.Exit(rigtest.Main(m)) }

// dial is a Cluster with the rights that the product ships; nobody runs it.
func dial(t *testing.T, c *rig.ControlPlane) *Cluster {
	t.Helper()
	path := must.Do(c.Kubeconfig(rig.FencedUser))(t)
	return connected(t, path)
}

// dialAs is dial for an installation.
func dialAs(t *testing.T, c *rig.ControlPlane, storeID string) *Cluster {
	t.Helper()
	path := must.Do(c.Kubeconfig(rig.FencedUser))(t)
	return must.Do(New(Config{Config: view.Config{Name: "rig", Kubeconfig: path, StoreID: storeID, FreshEvery: time.Second}}, zap.NewNop()))(t)
}

func connected(t *testing.T, kubeconfig string) *Cluster {
	t.Helper()
	return must.Do(New(Config{Config: view.Config{Name: "rig", Kubeconfig: kubeconfig, FreshEvery: time.Second}}, zap.NewNop()))(t)
}

// watching runs a Cluster until the test ends, and waits for its first view.
func watching(t *testing.T, c *rig.ControlPlane) *Cluster {
	t.Helper()
	path := must.Do(c.Kubeconfig(rig.FencedUser))(t)
	k := run(t, path)
	k8stest.Until(t, "the first view", func() bool { return k.View().Synced })
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

// A busy machine delays an API server by many seconds.
func init() { client.RequestTimeout = 20 * time.Second }

// running runs a Cluster until stop, which may be called again.
func running(t *testing.T, c *Cluster) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var once sync.Once
	return func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
		})
	}
}

// served is a Cluster whose API server is this handler: only for answers that a
// real API server does not give on demand.
func served(t *testing.T, h http.HandlerFunc) *Cluster {
	t.Helper()
	return must.Do(New(Config{Config: view.Config{Name: "test", Kubeconfig: k8stest.Served(t, h), FreshEvery: time.Second}}, zap.NewNop()))(t)
}

// The leader Leases of other remediation controllers, and the namespace of OpenShift's.
const (
	machineAPINamespace = "openshift-machine-api"
	powerCycleLeader    = "controller-leader-election-capbm"
	checkLeader         = "cluster-api-provider-healthcheck-leader"
	clusterAPILeader    = "controller-leader-election-capi"
	metal3Leader        = "controller-leader-election-capm3"
	nodeCheckLeader     = "e1f13584.medik8s.io"
)
