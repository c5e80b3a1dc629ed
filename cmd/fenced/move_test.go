package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/asroot"
)

// nobody is a user of every host, here the one whose the state is.
const nobody = 65534

// rootsDir is a directory that everybody may pass, where only root may write.
func rootsDir(t *testing.T) string {
	t.Helper()
	asroot.Need(t, "become somebody else")
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	return dir
}

// TestFirstOwner: whoever could put something in the way to the state is whom fenced
// becomes, and root only where nobody else could.
func TestFirstOwner(t *testing.T) {
	base := rootsDir(t)
	mkdir := func(name string, mode os.FileMode, uid int) {
		require.NoError(t, os.Mkdir(filepath.Join(base, name), 0o755))
		require.NoError(t, os.Chmod(filepath.Join(base, name), mode))
		require.NoError(t, os.Chown(filepath.Join(base, name), uid, 0))
	}
	link := func(name, target string, uid int) {
		require.NoError(t, os.Symlink(target, filepath.Join(base, name)))
		require.NoError(t, os.Lchown(filepath.Join(base, name), uid, uid))
	}
	mkdir("root", 0o775, 0)
	mkdir("theirs", 0o700, nobody)
	mkdir("theirs/root", 0o755, 0)
	mkdir("open", 0o777, 0)
	mkdir("group", 0o775, 0)
	require.NoError(t, os.Chown(filepath.Join(base, "group"), 0, nobody))
	mkdir("sticky", 0o777|os.ModeSticky, 0)
	mkdir("sticky/root", 0o755, 0)
	link("sticky/planted", "/etc", nobody)
	link("to-theirs", "theirs/root", 0)
	link("to-root", filepath.Join(base, "root")+"/../sticky/root/.", 0)
	link("loop", "loop", 0)
	require.NoError(t, os.WriteFile(filepath.Join(base, "file"), nil, 0o600))

	for dir, want := range map[string]uint32{
		"root": 0, "root/": 0, "to-root": 0, "sticky/root": 0, "root/../sticky": 0,
		"theirs": nobody, "theirs/root": nobody, "theirs/absent": nobody, "to-theirs": nobody, "to-theirs/../..": nobody, "sticky/planted": nobody,
	} {
		got, err := firstOwner(base + "/" + dir)
		require.NoError(t, err, dir)
		assert.Equal(t, want, got, dir)
	}
	for dir, want := range map[string]string{
		"open": "others may write in it", "open/absent": "others may write in it", "group": "others may write in it",
		"loop": "too many levels", "absent": "no such file", "file": "not a directory", "file/..": "not a directory",
	} {
		_, err := firstOwner(base + "/" + dir)
		require.ErrorContains(t, err, want, dir)
	}
	t.Chdir(filepath.Join(base, "root"))
	got, err := firstOwner("../theirs/")
	require.NoError(t, err)
	assert.EqualValues(t, nobody, got)
}

// moved runs fenced as root over the state of base/state, and gives what it said.
func moved(base string, args ...string) (string, error) {
	out, err := exec.Command("fenced", append([]string{"--config", filepath.Join(base, "fenced.yaml")}, args...)...).CombinedOutput()
	return string(out), err
}

// theirState is a directory of nobody's, with a configuration beside it and an export
// that only root may read.
func theirState(t *testing.T) (base, path string) {
	t.Helper()
	base = rootsDir(t)
	path = filepath.Join(base, "state/state.db")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(base, "fenced.yaml"), []byte("clusters: [{name: prod, kubeconfig: kc}]\nstate: {path: "+path+"}\n"), 0o600))
	script, err := txtar.ParseFile("testdata/script/move.txtar")
	require.NoError(t, err)
	for _, f := range script.Files {
		if f.Name == "pin.ndjson" {
			require.NoError(t, os.WriteFile(filepath.Join(base, "export"), f.Data, 0o600))
		}
	}
	t.Setenv("TMPDIR", base) // where only root may write
	require.NoError(t, os.Chown(filepath.Dir(path), nobody, nobody))
	return base, path
}

func ownedBy(t *testing.T, path string, uid uint32, mode os.FileMode) {
	t.Helper()
	fi, err := os.Lstat(path)
	require.NoError(t, err)
	is, ok := fi.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	require.Equal(t, uid, is.Uid, path)
	require.Equal(t, mode, fi.Mode(), path)
}

// TestMoveAsRootIsDoneAsTheOwner: what an import makes is the daemon's, what an export
// makes is root's.
func TestMoveAsRootIsDoneAsTheOwner(t *testing.T) {
	base, path := theirState(t)
	out, err := moved(base, "--import", filepath.Join(base, "export"))
	require.NoError(t, err, "%s", out)
	ownedBy(t, path, nobody, 0o600)
	again := filepath.Join(base, "again")
	out, err = moved(base, "--export", again)
	require.NoError(t, err, "%s", out)
	ownedBy(t, again, 0, 0o600)
}

// TestMoveAsRootTouchesNothingElse: links that the daemon's user left change nothing
// of root's.
func TestMoveAsRootTouchesNothingElse(t *testing.T) {
	base, path := theirState(t)
	roots := filepath.Join(base, "roots")
	for name, plant := range map[string]func() error{
		"symbolic link":    func() error { return os.Symlink(roots, path) },
		"belongs to uid 0": func() error { return os.Link(roots, path) },
	} {
		require.NoError(t, os.WriteFile(roots, nil, 0o644)) // what is empty is laid out as a state
		require.NoError(t, plant())
		out, err := moved(base, "--import", filepath.Join(base, "export"))
		require.Error(t, err, name)
		require.Contains(t, out, name)
		again := filepath.Join(base, "again")
		out, err = moved(base, "--export", again)
		require.Error(t, err, name)
		require.Contains(t, out, name)
		require.Contains(t, out, "no whole export; remove it yourself")
		require.NoError(t, os.Remove(again))
		ownedBy(t, roots, 0, 0o644)
		text, err := os.ReadFile(roots)
		require.NoError(t, err)
		require.Empty(t, text)
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Remove(roots))
	}
}
