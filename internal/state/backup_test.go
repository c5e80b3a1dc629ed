package state_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
)

func backup(run, uid, rv, node string, at time.Time) state.Backup {
	return state.Backup{RunID: run, NodeUID: uid, ResourceVersion: rv, Saved: at, Node: []byte(node)}
}

// Every byte of the Node's JSON is kept, with spaces and escapes. // I21
func TestBackupIsByteExact(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	b := backup("r1", "uid-1", "7", "{ \"a\":\t\"<&>\u2028é\", \"n\": 1.0e3,\n \"a\": 2}", noon)
	require.NoError(t, state.SaveBackup(ctx, s, b))
	got, err := state.Backups(ctx, s, "r1")
	require.NoError(t, err)
	require.Equal(t, []state.Backup{b}, got)
	got, err = state.Backups(ctx, s, "r2")
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestBackupRefusesHalfANode(t *testing.T) {
	s := openStore(t)
	for name, b := range map[string]state.Backup{
		"cut off":  backup("r1", "uid-1", "7", `{"a":`, noon),
		"empty":    backup("r1", "uid-1", "7", ``, noon),
		"no UID":   backup("r1", "", "7", `{}`, noon),
		"no run":   backup("", "uid-1", "7", `{}`, noon),
		"too long": backup("r1", "uid-1", "7", fmt.Sprintf("%q", make([]byte, state.MaxData)), noon),
	} {
		require.Error(t, state.SaveBackup(t.Context(), s, b), name)
	}
	list, err := s.List(t.Context(), state.KindBackup)
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestBackupsKeepFirstAndNewestOfEachNode(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	for i := range 5 {
		require.NoError(t, state.SaveBackup(ctx, s, backup("r1", "one", fmt.Sprint(i), fmt.Sprintf(`{"n":%d}`, i), noon)))
	}
	for i := range 5 {
		require.NoError(t, state.SaveBackup(ctx, s, backup("r1", "two", fmt.Sprint(10+i), fmt.Sprintf(`{"n":%d}`, 10+i), noon)))
	}
	got, err := state.Backups(ctx, s, "r1")
	require.NoError(t, err)
	var versions []string
	for _, b := range got {
		versions = append(versions, b.ResourceVersion)
	}
	require.Equal(t, []string{"0", "4", "10", "14"}, versions)
}

// The largest Node that etcd accepts can be saved in every attempt of a run, although each
// attempt finds another UID and the Node changes.
func TestBackupsOfTheLargestNodeInEachAttempt(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	node := fmt.Sprintf(`{"metadata":{"annotations":{"a":%q}}}`, strings.Repeat("x", 3<<19))
	for i := range 6 {
		require.NoError(t, state.SaveBackup(ctx, s, backup("r1", fmt.Sprint("uid-", i/2), fmt.Sprint(i), node, noon)))
	}
	got, err := state.Backups(ctx, s, "r1")
	require.NoError(t, err)
	require.Len(t, got, 6)
	for _, b := range got {
		require.Len(t, b.Node, len(node))
	}
}

// corruptingStore stores another backup than it was given, as a failing disk may.
type corruptingStore struct{ state.Store }

func (l corruptingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	if r.Kind == state.KindBackup {
		r.Data = []byte(`{"v":1,"data":[{"runID":"r1","nodeUID":"uid-1","resourceVersion":"7","saved":"2026-03-01T12:00:00Z","node":"e30="}]}`)
	}
	return l.Store.Put(ctx, r)
}

func TestBackupIsReadBack(t *testing.T) {
	s := corruptingStore{openStore(t)}
	require.NoError(t, state.SaveBackup(t.Context(), s, backup("r1", "uid-1", "7", `{}`, noon)))
	err := state.SaveBackup(t.Context(), s, backup("r1", "uid-1", "8", `{"labels":1}`, noon))
	require.ErrorContains(t, err, "read back differs")
}

func TestBackupOfTheFutureIsNotWrittenOver(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	_, err := s.Put(ctx, state.Record{Kind: state.KindBackup, Key: "r1", Data: []byte(`{"v":9}`)})
	require.NoError(t, err)
	require.ErrorIs(t, state.SaveBackup(ctx, s, backup("r1", "uid-1", "7", `{}`, noon)), state.ErrFuture)
	_, err = state.PruneBackups(ctx, s, noon.Add(time.Hour), func(string) bool { return false })
	require.ErrorIs(t, err, state.ErrFuture)
	r, err := s.Get(ctx, state.KindBackup, "r1")
	require.NoError(t, err)
	require.Equal(t, `{"v":9}`, string(r.Data))
}

func TestPruneBackups(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	save := func(run, uid string, at time.Time) {
		require.NoError(t, state.SaveBackup(ctx, s, backup(run, uid, "7", `{}`, at)))
	}
	save("old", "u1", noon.Add(-8*24*time.Hour))
	save("kept", "u2", noon.Add(-8*24*time.Hour))
	save("new", "u3", noon.Add(-6*24*time.Hour))
	save("both", "u4", noon.Add(-8*24*time.Hour))
	save("both", "u5", noon) // the newest backup of a run counts for all of them
	n, err := state.PruneBackups(ctx, s, noon.Add(-7*24*time.Hour), func(run string) bool { return run == "kept" })
	require.NoError(t, err)
	require.Equal(t, 1, n)
	for run, want := range map[string]int{"old": 0, "kept": 1, "new": 1, "both": 2} {
		list, err := state.Backups(ctx, s, run)
		require.NoError(t, err)
		require.Len(t, list, want, run)
	}
}
