package write

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func TestMain(m *testing.M) { os.Exit(rigtest.Main(m)) }

// A busy machine delays an API server by many seconds.
func init() { client.RequestTimeout = 20 * time.Second }

// serversAt is one API server as a kubeconfig names it.
func serversAt(t *testing.T, kubeconfig string) *client.Servers {
	t.Helper()
	s := client.NewServer("workload", kubeconfig, false, nil, zap.NewNop())
	require.NoError(t, s.Connect())
	return &client.Servers{Work: s, Manage: s, Served: client.ClusterGVR}
}

// served is an API server that is this handler: only for answers that a real one does not give on demand.
func served(t *testing.T, h http.HandlerFunc) *client.Servers {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: hush}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server.URL)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return serversAt(t, path)
}

func runsAt(t *testing.T, h http.HandlerFunc) *Runs {
	t.Helper()
	return NewRuns(served(t, h), nil)
}

func handoversAt(t *testing.T, h http.HandlerFunc) Handovers {
	t.Helper()
	return NewHandovers(served(t, h), func(schema.GroupKind) bool { return false }, func(c *policy.Check) *policy.Check { return c })
}

// dial is a control plane with the rights that the product ships.
func dial(t *testing.T, c *rig.ControlPlane) *client.Servers {
	t.Helper()
	path, err := c.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	return serversAt(t, path)
}

func announcerAt(t *testing.T, c *rig.ControlPlane) *Announcer {
	t.Helper()
	return NewAnnouncer(dial(t, c).Work)
}

// status answers with a Status object, as an API server refuses.
func status(w http.ResponseWriter, code int, reason, name string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d,"details":{"name":%q}}`, reason, reason+" "+name, code, name)
}

func until(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, within, 20*time.Millisecond, what)
}
