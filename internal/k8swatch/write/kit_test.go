package write

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/must"
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
	return serversAt(t, k8stest.Served(t, h))
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
	path := must.Do(c.Kubeconfig(rig.FencedUser))(t)
	return serversAt(t, path)
}

func announcerAt(t *testing.T, c *rig.ControlPlane) *Announcer {
	t.Helper()
	return NewAnnouncer(dial(t, c).Work)
}
