package client

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// A kubeconfig is checked without an API server, and nothing of its content is in an error.
func TestCheckKubeconfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kc")
	// Nothing else is read in the place of what is missing.
	t.Setenv("KUBECONFIG", path)
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.9")
	_, err := CheckKubeconfig(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)

	const head = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
	withProxy := func(url string) string {
		return strings.Replace(head, "{server:", "{proxy-url: '"+url+"', server:", 1) + "users: []\n"
	}
	for _, c := range []struct {
		text, err string
		secrets   []string
	}{
		{text: "", err: "it names no cluster"},
		{text: "Canary-4711", err: "read kubeconfig"},
		{text: head + "users: [{name: u, user: {token: Canary-4711}}]\n"},
		{text: head + "users: [{name: u, user: {client-certificate-data: Q2FuYXJ5, client-key-data: Q2FuYXJ5}}]\n", err: "use kubeconfig"},
		{text: head + "users: [{name: u, user: {tokenFile: none}}]\n", err: "no such file"},
		{text: head + "users: [{name: u, user: {token: *Canary-4711}}]\n", err: "quote a text that begins with *"},
		{text: head + "users: [{name: u, user: Canary-4711}]\n", err: "read kubeconfig"},
		{text: strings.Replace(head, "https://", "https://root:Canary-4711@", 1) + "users: []\n"},
		{text: withProxy("http://root:Canary-4711@192.0.2.2:port"), err: "invalid 'proxy-url' \"http://[redacted]@192.0.2.2:port\""},
		{text: withProxy("socks9://root:Canary-4711@192.0.2.2"), err: "unsupported scheme"},
		{text: head + "users: [{name: u, user: {tokenFile: token}}]\n", secrets: []string{dir + "/token"}},
	} {
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("Canary-4711"), 0o600))
		secrets, err := CheckKubeconfig(path)
		if c.err == "" {
			require.NoError(t, err, c.text)
		} else {
			require.ErrorContains(t, err, c.err, c.text)
			require.NotContains(t, err.Error(), "Canary")
		}
		require.Equal(t, c.secrets, secrets, c.text)
	}
}

// What client-go logs by itself, as a warning of the API server, goes to the daemon's log.
func TestLogTo(t *testing.T) {
	var said bytes.Buffer
	LogTo(&said)
	defer klog.ClearLogger()
	rest.WarningLogger{}.HandleWarningHeader(299, "", "this version is deprecated")
	assert.Contains(t, said.String(), "this version is deprecated")
	assert.NotContains(t, said.String(), "time=")
}
