package boltstore_test

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state/boltstore"
)

// The target of a link in the directory of the state is not changed and not created.
func TestBoltFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	other, path := filepath.Join(dir, "other"), filepath.Join(dir, "state.db")
	require.NoError(t, os.Symlink(other, path))
	_, err := boltstore.Open(path)
	require.ErrorContains(t, err, "open state file "+path+": refused, because it is a symbolic link")
	require.NoFileExists(t, other)

	require.NoError(t, os.WriteFile(other, nil, 0o644)) // bbolt would initialize an empty file
	_, err = boltstore.Open(path)
	require.ErrorContains(t, err, "symbolic link")
	fi, err := os.Stat(other)
	require.NoError(t, err)
	require.Zero(t, fi.Size())
	require.Equal(t, os.FileMode(0o644), fi.Mode())
}

// Open does not wait for what is not a regular file, and does not change it.
func TestBoltRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	kinds := map[string]func(path string) error{
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o644) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"socket": func(path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		},
	}
	for name, do := range kinds {
		path := filepath.Join(dir, name)
		require.NoError(t, do(path))
		before, err := os.Lstat(path)
		require.NoError(t, err)
		_, err = boltstore.Open(path)
		require.ErrorContains(t, err, "refused, because it is not a regular file", name)
		after, err := os.Lstat(path)
		require.NoError(t, err)
		require.Equal(t, before.Mode(), after.Mode(), name)
	}
}

// Only root can write through a hard link to a file of another user.
func TestBoltAsRootRefusesASecondName(t *testing.T) {
	dir := t.TempDir()
	other, path := filepath.Join(dir, "other"), filepath.Join(dir, "state.db")
	require.NoError(t, os.WriteFile(other, nil, 0o644))
	require.NoError(t, os.Link(other, path))
	s, err := boltstore.Open(path)
	if os.Geteuid() != 0 {
		require.NoError(t, err)
		require.NoError(t, s.Close())
		return
	}
	require.ErrorContains(t, err, "refused, because it has 2 names")
	fi, err := os.Stat(other)
	require.NoError(t, err)
	require.Zero(t, fi.Size())
	require.Equal(t, os.FileMode(0o644), fi.Mode())
}
