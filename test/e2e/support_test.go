package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// The passwords that only this test gives the daemon.
const (
	credentialCanary = "from-systemd-4711"
	tokenCanary      = "token-of-a-kubeconfig"
)

// TestSupportBundleHoldsNoSecret: of all that the daemon of this scene was given, and of what other
// programs wrote into its journal, no secret is in the bundle; neither while it runs nor when it is
// down. What helps is in it. // I25
func TestSupportBundleHoldsNoSecret(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Set: []string{"sweep.interval=10s", "power.readTimeout=2s", "log.level=debug"},
		Workers: []scene.Spec{
			{Name: "by-ipmi", Protocol: scene.IPMI},
			{Name: "by-redfish", Protocol: scene.Redfish, Metal3: true},
			{Name: "refused", Protocol: scene.IPMI, WrongPassword: true},
			{Name: "by-credential", Protocol: scene.IPMI, Unlisted: true},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	etcd, _ := shareEtcd(t, s)
	put(t, s, "conf.d/more.yaml", fmt.Sprintf("metrics: {listen: %q}\nstate: {engine: etcd, etcd: {endpoints: [%s], ca: %s, cert: %s, key: %s}}\n",
		freeAddress(t), strings.Join(etcd.Endpoints(), ", "), etcd.CA(), etcd.Cert(), etcd.Key()))
	put(t, s, "hosts.d/credential.yaml", fmt.Sprintf("hosts:\n- node: by-credential\n  bmc: {address: %q, username: fence, credential: bmc}\n", s.Worker("by-credential").Address()))
	credentials := filepath.Dir(put(t, s, "credentials/bmc", credentialCanary))
	secrets := canaries(t, s)
	secrets["the credential"], secrets["the token"] = credentialCanary, tokenCanary
	secrets["the key of the etcd"] = keyLine(t, etcd.Key())
	addToken(t, s)

	programs, err := builds()
	require.NoError(t, err)
	d, err := s.Launch(programs.Fenced, "CREDENTIALS_DIRECTORY="+credentials)
	require.NoError(t, err)
	require.NoError(t, s.WaitSocket(ctx, d))
	for _, name := range []string{"by-ipmi", "by-redfish", "refused", "by-credential"} {
		s.Worker(name).Kubelet.Hang()
	}
	awaitRun(ctx, t, s, "by-ipmi", result(wire.ResultDone))
	awaitRun(ctx, t, s, "by-redfish", result(wire.ResultDone))
	awaitRefusal(ctx, t, s, "refused", "BMCAuth")
	awaitRefusal(ctx, t, s, "by-credential", "BMCAuth")

	parts := supportBundle(ctx, t, s, secrets)
	requireNoSecret(t, parts, secrets)
	for name, want := range map[string]string{
		"MANIFEST": "the daemon answered", "versions.txt": "fencectl: ", "status.json": `"reason":"BMCAuth"`, "explain/scene/refused.json": `"refused":"BMCAuth"`,
		"explain/scene/by-credential.json": `"gates"`, "timeline/scene/refused.json": `"notes"`, "runs.json": `"result":"Done"`, "bmcs.json": `"reason":"BMCAuth"`,
		"metrics.txt": "fenced_audit_writable 1", "journal.txt": "password=[redacted]", "audit.txt": "are as they were written\nhead ",
		"configuration/fenced.yaml": "name: scene", "configuration/conf.d/more.yaml": "engine: etcd", "configuration/hosts.d/hosts.yaml": "username: fence",
		"configuration/hosts.d/credential.yaml": "node: by-credential", "configuration/access.txt": etcd.Key(),
	} {
		assert.Contains(t, parts[name], want, name)
	}
	assert.NotContains(t, parts["MANIFEST"], "json: not read")

	_, err = d.Terminate(ctx)
	require.NoError(t, err)
	parts = supportBundle(ctx, t, s, secrets)
	requireNoSecret(t, parts, secrets)
	assert.Contains(t, parts["MANIFEST"], "the daemon did not answer, so its parts are missing")
	assert.NotContains(t, parts, "status.json")
	assert.Contains(t, parts["audit.txt"], "are as they were written")
	assert.Contains(t, parts["configuration/fenced.yaml"], "name: scene")
}

// put writes a file beside fenced.yaml, and gives its path.
func put(t *testing.T, s *scene.Scene, name, text string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(s.Config()), name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// addToken gives the kubeconfig another user, whom nobody uses, with a token.
func addToken(t *testing.T, s *scene.Scene) {
	t.Helper()
	configuration, err := os.ReadFile(s.Config())
	require.NoError(t, err)
	path := regexp.MustCompile(`kubeconfig: (\S+),`).FindSubmatch(configuration)
	require.NotNil(t, path)
	text, err := os.ReadFile(string(path[1]))
	require.NoError(t, err)
	users := []byte("users:\n")
	require.Equal(t, 1, bytes.Count(text, users))
	text = bytes.Replace(text, users, []byte("users:\n- name: nobody\n  user:\n    token: "+tokenCanary+"\n"), 1)
	require.NoError(t, os.WriteFile(string(path[1]), text, 0o600))
}

// keyLine is a line of a private key.
func keyLine(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "PRIVATE KEY-----\n")
	return strings.Split(string(text), "\n")[1]
}

// supportBundle are the parts of a bundle, by name, and the archive itself as "". The journal has the
// daemon's own lines, and others that have every secret in a form in which programs write it.
func supportBundle(ctx context.Context, t *testing.T, s *scene.Scene, secrets map[string]string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	log, err := os.ReadFile(filepath.Join(filepath.Dir(s.Config()), "fenced.log"))
	require.NoError(t, err)
	for _, secret := range secrets {
		log = fmt.Appendf(log, "sent password=%s to https://fence:%s@192.0.2.1/\n-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n", secret, secret, secret)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "journal"), log, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "journalctl"), []byte("#!/bin/sh\ncat "+dir+"/journal\n"), 0o700))

	programs, err := builds()
	require.NoError(t, err)
	file := filepath.Join(dir, "bundle.tar.gz")
	cmd := exec.CommandContext(ctx, programs.Fencectl, "--socket", s.Socket(), "support-bundle", "-o", file, "--config", s.Config())
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	archive, err := os.ReadFile(file)
	require.NoError(t, err)
	parts := map[string]string{"": string(archive) + string(said)}
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	for members := tar.NewReader(zip); ; {
		h, err := members.Next()
		if errors.Is(err, io.EOF) {
			return parts
		}
		require.NoError(t, err)
		text, err := io.ReadAll(members)
		require.NoError(t, err)
		parts[strings.TrimPrefix(h.Name, "fenced-support/")] = h.Name + "\n" + string(text)
	}
}

func requireNoSecret(t *testing.T, parts, secrets map[string]string) {
	t.Helper()
	require.Greater(t, len(secrets), 10)
	for name, text := range parts {
		for what, secret := range secrets {
			assert.False(t, strings.Contains(text, secret), "%s is in part %q", what, name)
		}
	}
}
