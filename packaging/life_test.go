package packaging_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/fenced/fenced/internal/state"
)

// TestLifeOfThePackage lets dnf install, upgrade, downgrade and erase the package from a
// repository, under a real systemd. The upgrade comes while a host is off and not proven off:
// the new daemon ends the same run. The downgrade meets a state of a newer schema: the old
// daemon refuses it and leaves it as it is.
func TestLifeOfThePackage(t *testing.T) {
	needBoot(t)
	need(t, "dnf", "dnf")
	need(t, "createrepo_c", "createrepo-c")
	dir := shareScript(t, "life.sh")
	repo := filepath.Join(dir, "repo")
	older := rpmFile(t)
	newer, err := builtNewVersion()
	require.NoError(t, err)
	sh(t, `mkdir -m 0755 "$3" && cp "$1" "$2"/*.rpm "$3/" && rm "$3"/*.src.rpm && createrepo_c --quiet "$3" && chmod -R a+rX "$3"`, older, newer, repo)

	s := hungScene(t)
	sh(t, `umask 022; mkdir -p "$1/tree/etc/fenced/hosts.d"`, dir)
	configure(t, s, dir)
	// Not before the package is installed, which makes the directory.
	sh(t, `mv "$1/tree/etc/fenced" "$1/etc"`, dir)
	booted := bootAsync(t, dir)
	hangWhenStarted(t, s, dir, booted)
	awaitFile(t, filepath.Join(dir, "killed"), booted)
	s.Worker(hungNode).Answer()
	awaitFile(t, filepath.Join(dir, "stopped"), booted)
	if !t.Failed() {
		ofNewerSchema(t, filepath.Join(dir, "state.db"))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "newer"), nil, 0o644))

	requireBooted(t, dir, booted,
		"ok installed: nothing enabled, nothing started", "ok the run is open", "ok upgraded in mid-run: the new daemon has the run", "ok the same run is done",
		"ok downgraded onto a newer state: refused, and the state untouched", "ok the newer state is left, and the old one taken up", "ok erased: stopped, state and changed configuration kept")
	requireFencedOnce(t, s)
}

// ofNewerSchema makes a state as a fenced after this one would leave it.
func ofNewerSchema(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("fenced")).Put([]byte("schema"), []byte(strconv.Itoa(state.Schema+1)))
	}))
	require.NoError(t, db.Close())
}
