package boltstore_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
)

func TestBoltConformance(t *testing.T) {
	statetest.Run(t, statetest.Engine{NewPath: statetest.File, Open: boltstore.Open, Soak: dice.Soak()})
}

func TestBoltHasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := must.Do(boltstore.Open(path))(t)
	_, err := boltstore.Open(path)
	require.ErrorIs(t, err, state.ErrLocked)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "held by another fenced")
	require.NoError(t, s.Close())
	s = must.Do(boltstore.Open(path))(t)
	require.NoError(t, s.Close())
}

func TestBoltFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for range 2 { // created, then found with a wider mode
		s := must.Do(boltstore.Open(path))(t)
		require.NoError(t, s.Close())
		fi := must.Do(os.Stat(path))(t)
		require.Equal(t, os.FileMode(0o600), fi.Mode())
		require.NoError(t, os.Chmod(path, 0o644))
	}
}

func TestBoltIDsDiffer(t *testing.T) {
	ids := map[string]bool{}
	for range 3 {
		s := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
		id := must.Do(state.ID(t.Context(), s))(t)
		require.NoError(t, s.Close())
		ids[id] = true
	}
	require.Len(t, ids, 3)
}

// edit changes a state file without the store.
func edit(t *testing.T, path string, do func(*bolt.Tx) error) {
	db := must.Do(bolt.Open(path, 0o600, nil))(t)
	assert.NoError(t, db.Update(do))
	require.NoError(t, db.Close())
}

func TestBoltRefusesOtherFiles(t *testing.T) {
	setSchema := func(text string) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte("fenced")).Put([]byte("schema"), []byte(text)) }
	}
	t.Run("a newer schema", func(t *testing.T) {
		err := refused(t, setSchema("4"))
		require.ErrorIs(t, err, state.ErrFuture)
		require.ErrorContains(t, err, "schema 4, this program knows 3")
	})
	t.Run("no number", func(t *testing.T) { require.ErrorContains(t, refused(t, setSchema("x")), "schema") })
	t.Run("none that was released", func(t *testing.T) { require.ErrorContains(t, refused(t, setSchema("2")), "schema") })
	t.Run("another program's", func(t *testing.T) {
		err := refused(t, func(tx *bolt.Tx) error {
			if _, err := tx.CreateBucket([]byte("photos")); err != nil {
				return err
			}
			return tx.DeleteBucket([]byte("fenced"))
		})
		require.ErrorContains(t, err, "another program")
	})
	t.Run("a kind is missing", func(t *testing.T) {
		require.Error(t, refused(t, func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("meta")) }))
	})
}

// refused creates a state file, edits it, and returns the error of Open. It checks that Open
// changed no byte.
func refused(t *testing.T, do func(*bolt.Tx) error) error {
	path := filepath.Join(t.TempDir(), "state.db")
	s := must.Do(boltstore.Open(path))(t)
	require.NoError(t, s.Close())
	edit(t, path, do)
	before := must.Do(os.ReadFile(path))(t)
	_, openErr := boltstore.Open(path)
	require.Error(t, openErr)
	require.ErrorContains(t, openErr, path)
	after := must.Do(os.ReadFile(path))(t)
	require.Equal(t, before, after, "a refused file was written to")
	return openErr
}

// A file that was cut short or has another content is an error with the path, not a crash.
func TestBoltDamagedFile(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.db")
	s := must.Do(boltstore.Open(good))(t)
	for i := range 50 {
		must.Do(s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: fmt.Sprint(i), Data: make([]byte, 1000)}))(t)
	}
	require.NoError(t, s.Close())
	whole := must.Do(os.ReadFile(good))(t)

	garbage := make([]byte, len(whole))
	for i := range garbage {
		garbage[i] = byte(i * 7)
	}
	zeroed := append([]byte{}, whole...)
	clear(zeroed[2*os.Getpagesize():])
	for name, content := range map[string][]byte{
		"a text": []byte("clusters: []\n"), "garbage": garbage,
		"one page": whole[:os.Getpagesize()], "cut short": whole[:len(whole)/2], "zeroed": zeroed,
	} {
		path := filepath.Join(t.TempDir(), "state.db")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		_, err := boltstore.Open(path)
		require.Error(t, err, name)
		require.ErrorContains(t, err, path)
	}
	_, err := boltstore.Open(filepath.Join(t.TempDir(), "none", "state.db"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

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
	fi := must.Do(os.Stat(other))(t)
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
		before := must.Do(os.Lstat(path))(t)
		_, err := boltstore.Open(path)
		require.ErrorContains(t, err, "refused, because it is not a regular file", name)
		after := must.Do(os.Lstat(path))(t)
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
	fi := must.Do(os.Stat(other))(t)
	require.Zero(t, fi.Size())
	require.Equal(t, os.FileMode(0o644), fi.Mode())
}
