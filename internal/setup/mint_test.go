package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// kubectl is a stand-in that answers as kubectl does, and notes how it was called.
const kubectl = `#!/bin/sh
echo "$*" >>"$(dirname "$0")/called"
namespace=$(dirname "$0")/namespace-of-$(basename "$3") # of the API server that the kubeconfig leads to
case "$*" in
*"get namespace"*) if [ -e "$namespace" ]; then cat "$namespace"; fi ;;
*"create namespace"*) printf uid-made | tee "$namespace" ;;
*"get secret"* | *"create token"*) printf the-token ;;
*.server}) printf https://192.0.2.10:6443 ;;
*.certificate-authority-data}) printf Q0E= ;;
*jsonpath*) ;;
*" version")
	[ ! -e "$(dirname "$0")/interrupts" ] || kill -TERM $PPID
	[ ! -e "$(dirname "$0")/refuses" ] ;;
esac
`

// minted runs the script in a directory of its own; happens is "", "refuses" or "interrupts".
func minted(t *testing.T, s *Survey, o *Options, happens string, args ...string) (dir, said string, err error) {
	t.Helper()
	dir = t.TempDir()
	said, err = mintedIn(t, dir, s, o, happens, args...)
	return dir, said, err
}

// mintedIn runs it in a directory in which it may have run before.
func mintedIn(t *testing.T, dir string, s *Survey, o *Options, happens string, args ...string) (said string, err error) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, s.script()), s.mintScript(o), 0o600))
	if happens != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, happens), nil, 0o600))
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{filepath.Join(dir, s.script())}, args...)...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECTL=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The script writes a kubeconfig that only its owner may read, with nothing of the administrator's account.
func TestMintScript(t *testing.T) {
	s := seen("v1.36.3")
	o := &Options{Dir: "/etc/fenced", Request: Request{Kubeconfig: "/root/`$(touch pwned)`/admin \"x\" }.conf"}}
	dir, said, err := minted(t, s, o, "")
	require.NoError(t, err, said)
	assert.NotContains(t, said, "the-token")
	assert.NoFileExists(t, filepath.Join(dir, "pwned"))
	called, err := os.ReadFile(filepath.Join(dir, "called"))
	require.NoError(t, err)
	assert.Contains(t, string(called), "--kubeconfig "+o.Request.Kubeconfig+" apply -f prod-rbac.yaml\n")
	assert.NotContains(t, string(called), "the-token", "a token on a command line")

	text, err := os.ReadFile(filepath.Join(dir, "prod.kubeconfig"))
	require.NoError(t, err)
	var kubeconfig map[string]any
	require.NoError(t, yaml.Unmarshal(text, &kubeconfig))
	assert.Equal(t, []any{map[string]any{"name": "fenced", "cluster": map[string]any{"server": "https://192.0.2.10:6443", "certificate-authority-data": "Q0E="}}}, kubeconfig["clusters"])
	assert.Equal(t, []any{map[string]any{"name": "fenced", "user": map[string]any{"token": "the-token"}}}, kubeconfig["users"])
	fi, err := os.Stat(filepath.Join(dir, "prod.kubeconfig"))
	require.NoError(t, err)
	assert.Zero(t, fi.Mode().Perm()&0o007, "others may read the token")
}

// A kubeconfig that the API server refuses, or whose check is interrupted, does not take the place of the one that works. No
// question waits for ever for an API server that hangs.
func TestMintScriptKeepsWhatWorks(t *testing.T) {
	s := seen("v1.36.3")
	for _, happens := range []string{"refuses", "interrupts"} {
		dir, said, err := minted(t, s, &Options{}, happens, "admin.conf")
		require.Error(t, err, said)
		assert.Equal(t, happens == "refuses", strings.Contains(said, "does not take the new kubeconfig"))
		assert.NoFileExists(t, filepath.Join(dir, "prod.kubeconfig"))
		assert.NoFileExists(t, filepath.Join(dir, "prod.kubeconfig.new"), "a token is left behind")
		called, err := os.ReadFile(filepath.Join(dir, "called"))
		require.NoError(t, err)
		for call := range strings.Lines(string(called)) {
			assert.Contains(t, call, "--request-timeout=30s")
		}
	}
}

// A token that expires comes from a request; --server replaces the address.
func TestMintScriptOptions(t *testing.T) {
	s := seen("v1.36.3")
	s.Servers = append(s.Servers, Server{URL: "https://192.0.2.20:6443"})
	o := &Options{TokenDuration: 720 * time.Hour, Server: "https://api.example.org:6443'"}
	dir, said, err := minted(t, s, o, "", "given.conf", "/other.conf")
	require.NoError(t, err, said)
	called, err := os.ReadFile(filepath.Join(dir, "called"))
	require.NoError(t, err)
	assert.Contains(t, string(called), "--kubeconfig //given.conf apply", "relative to where the script is called")
	assert.Contains(t, string(called), "--kubeconfig /other.conf apply")
	assert.Contains(t, string(called), "create token fenced --duration 2592000s\n")
	assert.Contains(t, string(called), "apply -f prod-management-rbac.yaml\n")
	text, err := os.ReadFile(filepath.Join(dir, "prod.kubeconfig"))
	require.NoError(t, err)
	assert.Contains(t, string(text), `server: "https://api.example.org:6443'"`)
	text, err = os.ReadFile(filepath.Join(dir, "prod-management.kubeconfig"))
	require.NoError(t, err)
	assert.Contains(t, string(text), `server: "https://192.0.2.10:6443"`)
}

// The script makes the Namespace of fenced, and afterwards knows it by its UID. One that somebody else made is refused before
// anything is granted, whatever labels it has, until a person has accepted just that one.
func TestMintScriptTrustsNoNamespaceOfOthers(t *testing.T) {
	for _, apart := range []bool{false, true} {
		s := seen("v1.36.3")
		if apart {
			s.Servers = append(s.Servers, Server{URL: "https://192.0.2.20:6443"})
		}
		granted := func(dir string) bool {
			called, err := os.ReadFile(filepath.Join(dir, "called"))
			require.NoError(t, err)
			return strings.Contains(string(called), " apply ")
		}
		dir := t.TempDir()
		namespace, args := filepath.Join(dir, "namespace-of-admin.conf"), []string{"admin.conf"}
		if apart { // the first of two is fine
			namespace, args = filepath.Join(dir, "namespace-of-manager.conf"), []string{"admin.conf", "manager.conf"}
		}
		require.NoError(t, os.WriteFile(namespace, []byte("uid-of-a-tenant"), 0o600))
		for _, o := range []*Options{{}, {ExistingNamespace: true}} { // accepted, and gone when init looked
			said, err := mintedIn(t, dir, s, o, "", args...)
			require.Error(t, err)
			assert.Contains(t, said, "the namespace fenced exists, and this script did not make it")
			assert.Contains(t, said, "--existing-namespace")
			assert.False(t, granted(dir), "%s", said)
			assert.NoFileExists(t, filepath.Join(dir, "prod.kubeconfig"))
		}
		require.NoError(t, os.Remove(namespace))
		for range 2 { // made, and then known
			said, err := mintedIn(t, dir, s, &Options{}, "", args...)
			require.NoError(t, err, said)
			assert.True(t, granted(dir))
		}
		require.NoError(t, os.WriteFile(namespace, []byte("uid-of-a-tenant"), 0o600))
		said, err := mintedIn(t, dir, s, &Options{}, "", args...)
		require.Error(t, err, "another one has taken the place of what it made: %s", said)

		for i := range s.Servers {
			s.Servers[i].Namespace = "uid-of-a-tenant"
		}
		_, err = mintedIn(t, dir, s, &Options{}, "", args...)
		require.Error(t, err, "nobody has accepted it")
		for _, accepted := range []bool{true, false} { // and then known
			said, err := mintedIn(t, dir, s, &Options{ExistingNamespace: accepted}, "", args...)
			require.NoError(t, err, said)
		}
	}
}
