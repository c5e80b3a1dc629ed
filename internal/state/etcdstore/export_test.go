package etcdstore_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/statetest"
)

func openBolt(t *testing.T) state.Store {
	t.Helper()
	s, err := boltstore.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// An export moves every record from bbolt to etcd and back to bbolt. Open runs stay open.
func TestExportMovesBetweenEngines(t *testing.T) {
	t.Parallel()
	from, through, to := openBolt(t), openEtcd(t, sharedEtcd(t), newPrefix()), openBolt(t)
	statetest.Fill(t, from, 400<<10) // base64 makes it too large for one key of etcd
	want := statetest.Records(t, from)
	for _, step := range [][2]state.Store{{from, through}, {through, to}} {
		n, err := state.Import(t.Context(), step[1], bytes.NewReader(statetest.Export(t, step[0])))
		require.NoError(t, err)
		require.Len(t, want, n)
		require.Equal(t, want, statetest.Records(t, step[1]))
		require.NoError(t, state.CheckComplete(t.Context(), step[1]))
	}
	runs, err := state.LoadRuns(t.Context(), to)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.True(t, runs[0].Open())
	first, err := state.ID(t.Context(), from)
	require.NoError(t, err)
	second, err := state.ID(t.Context(), to)
	require.NoError(t, err)
	require.NotEqual(t, first, second, "another store has another id")
}

func TestImportIntoAStoreInUse(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, keepClaim)
	a.awaitClaim(t, "prod")
	_, err := state.Import(t.Context(), openEtcd(t, c, prefix), bytes.NewReader(statetest.Export(t, openBolt(t))))
	require.ErrorIs(t, err, state.ErrLocked)
	require.ErrorContains(t, err, `"a"`)
}
