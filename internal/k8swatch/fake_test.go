package k8swatch

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
)

// served is a Cluster whose API server is this handler: only for answers that a
// real API server does not give on demand.
func served(t *testing.T, h http.HandlerFunc) *Cluster {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := New(Config{Name: "test", Kubeconfig: kubeconfigFor(t, server.URL), FreshEvery: time.Second}, zap.NewNop())
	require.NoError(t, err)
	return c
}

func kubeconfigFor(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: hush}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, url)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// status answers with a Status object, as an API server refuses.
func status(w http.ResponseWriter, code int, reason, name string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d,"details":{"name":%q}}`, reason, reason+" "+name, code, name)
}
