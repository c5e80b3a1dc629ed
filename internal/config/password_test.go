package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

func passwordFile(t *testing.T, text string, mode os.FileMode) string {
	path := filepath.Join(t.TempDir(), "pw")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

func TestReadPassword(t *testing.T) {
	for _, mode := range []os.FileMode{0o400, 0o600, 0o640} {
		e := HostEntry{PasswordFile: passwordFile(t, "  s3 cret\n", mode)}
		secret, err := e.ReadPassword()
		require.NoError(t, err)
		require.Equal(t, "s3 cret", secret.Reveal(), "outer whitespace is trimmed, inner is not")
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", secret, secret, secret), "s3") // I25
	}
	e := HostEntry{PasswordFile: passwordFile(t, "one", 0o600)}
	require.NoError(t, os.WriteFile(e.PasswordFile, []byte("two"), 0o600))
	secret, err := e.ReadPassword()
	require.NoError(t, err)
	require.Equal(t, "two", secret.Reveal(), "read at each use")
}

func TestReadPasswordRefuses(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for _, c := range []struct{ name, path, want string }{
		{"open to everyone", passwordFile(t, "canary", 0o644), "chmod o= "},
		{"written by everyone", passwordFile(t, "canary", 0o602), "is open to everyone (mode 0602)"},
		{"empty", passwordFile(t, " \n\t", 0o600), "is empty"},
		{"huge", passwordFile(t, strings.Repeat("canary", 1000), 0o600), "larger than 4096"},
		{"missing", "/nowhere/pw", "no such file"},
		{"a directory", t.TempDir(), "/"},
		{"a pipe that nobody writes", fifo, "not a regular file"},
	} {
		e := HostEntry{Host: bmc.Host{Name: "prod/a", Source: "hosts.d/a.yaml:3"}, PasswordFile: c.path}
		secret, err := e.ReadPassword()
		require.ErrorContains(t, err, c.want, c.name)
		require.ErrorContains(t, err, "hosts.d/a.yaml:3: read the password of prod/a", c.name)
		require.NotContains(t, err.Error(), "canary", c.name) // I25
		require.True(t, secret.Empty(), c.name)
	}
}

func TestReadPasswordFromACredential(t *testing.T) {
	e := HostEntry{Host: bmc.Host{Name: "prod/a", Source: "hosts.d/a.yaml:3"}, Credential: "a-bmc"}
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	_, err := e.ReadPassword()
	require.ErrorContains(t, err, "add LoadCredential=a-bmc:PATH to the unit")
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	_, err = e.ReadPassword()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a-bmc"), []byte("s3cret"), 0o400))
	secret, err := e.ReadPassword()
	require.NoError(t, err)
	require.Equal(t, "s3cret", secret.Reveal())
}

func TestReadPasswordLeavesSecretsToTheDaemon(t *testing.T) {
	_, err := HostEntry{SecretNamespace: "ns", SecretName: "s"}.ReadPassword()
	require.ErrorIs(t, err, ErrNoPassword)
}
