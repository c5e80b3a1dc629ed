package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/test/asroot"
)

// A port that another program has is a warning: the daemon fences without metrics. One that
// the running daemon has is what a restart finds free.
func TestCheckPort(t *testing.T) {
	assert.Empty(t, checkPort(""))
	assert.Empty(t, checkPort("127.0.0.1:0"))
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	go func() { _ = http.Serve(other, http.NotFoundHandler()) }() // until it is closed
	said := checkPort(other.Addr().String())
	assert.Contains(t, said, "address already in use; the daemon would run without metrics and try again, and fencing goes on")

	d := &fenced{metrics: newMetrics("1")}
	own := httptest.NewServer(d.pages())
	defer own.Close()
	assert.Empty(t, checkPort(strings.TrimPrefix(own.URL, "http://")))
}

const someKubeconfig = `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "https://192.0.2.1"}}],
users: [{name: u, user: {token: t}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}`

// Root checks, and another user runs: what that user may not read keeps the daemon down, or
// a host from being fenced.
func TestCheckAsTheServicesUser(t *testing.T) {
	asroot.Need(t, "try as another user")
	const nobody = 65534
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	for name, text := range map[string]string{
		"fenced.yaml": "clusters: [{name: prod, kubeconfig: kc}]\nhosts: hosts.d\nstate: {path: state/state.db}\nmetrics: {listen: \"\"}\n",
		"kc":          someKubeconfig, "hosts.d/a.yaml": "hosts: [{node: n, bmc: {address: 192.0.2.1, username: u, passwordFile: ../password}}]\n", "password": "s3cret",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path(name)), 0o755))
		require.NoError(t, os.WriteFile(path(name), []byte(text), 0o600))
	}
	require.NoError(t, os.Mkdir(path("state"), 0o700))
	require.NoError(t, os.Chown(path("state"), nobody, nobody))

	warnings, err := config.Check(path("fenced.yaml"), checkRestart)
	require.Error(t, err)
	for _, name := range []string{"fenced.yaml", "hosts.d/a.yaml", "kc"} {
		assert.ErrorContains(t, err, path(name)+": the daemon runs as user nobody, who may not read it; run: chgrp ")
	}
	require.Len(t, warnings, 1, "%q", warnings)
	assert.Contains(t, warnings[0], path("password")+": the daemon runs as user nobody, who may not read it")
	_, err = os.ReadFile(path("kc"))
	require.NoError(t, err, "the process is still root's")

	for _, name := range []string{"fenced.yaml", "hosts.d/a.yaml", "kc", "password"} {
		require.NoError(t, os.Chown(path(name), 0, nobody))
		require.NoError(t, os.Chmod(path(name), 0o640))
	}
	warnings, err = config.Check(path("fenced.yaml"), checkRestart)
	require.NoError(t, err)
	require.Empty(t, warnings)

	// The key that a kubeconfig names belongs to it.
	require.NoError(t, os.WriteFile(path("kc"), []byte(strings.Replace(someKubeconfig, "token: t", "tokenFile: token", 1)), 0o640))
	require.NoError(t, os.WriteFile(path("token"), []byte("t"), 0o600))
	_, err = config.Check(path("fenced.yaml"), checkRestart)
	require.ErrorContains(t, err, "the daemon runs as user nobody: ")
	require.ErrorContains(t, err, path("token")+": permission denied")
	require.NoError(t, os.Chmod(path("token"), 0o604))

	require.NoError(t, os.Chmod(path("hosts.d"), 0o700))
	_, err = config.Check(path("fenced.yaml"), checkRestart)
	require.ErrorContains(t, err, path("hosts.d")+": the daemon runs as user nobody")
}
