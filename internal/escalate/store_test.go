package escalate

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
)

func openStore(t *testing.T) state.Store {
	t.Helper()
	s, err := boltstore.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestAsked(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := Record{
		ID: "1", Check: "FencePolicy.fenced.io p", Target: remediate.Target{Cluster: "c", Node: "n"}, Started: at,
		Objects: []request.Object{{APIVersion: "a/v1", Kind: "K", Namespace: "ns", Name: "n", Template: "t", Mark: "s/c/1", Made: at}},
	}
	saved, err := Save(ctx, s, r)
	require.NoError(t, err)
	_, err = Save(ctx, s, r)
	require.ErrorIs(t, err, state.ErrExists)
	saved.Objects[0].UID = "u"
	saved, err = Save(ctx, s, saved)
	require.NoError(t, err)
	_, err = state.SaveRefusedAccounts(ctx, s, state.RefusedAccounts{Instance: "a"}) // of the same kind
	require.NoError(t, err)
	list, err := Load(ctx, s)
	require.NoError(t, err)
	assert.Equal(t, []Record{saved}, list)

	_, err = Save(ctx, s, Record{ID: "2"})
	require.ErrorContains(t, err, "no cluster")
	require.NoError(t, remove(ctx, s, saved))
	list, _ = Load(ctx, s)
	assert.Empty(t, list)
}

// A record that cannot be read still says on what nobody may act, even if its target has another
// Node since. Only one whose key says nothing is an error.
func TestAskedThatCannotBeRead(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	target := remediate.Target{Cluster: "c d", Node: "n", NodeUID: "u", Namespace: "ns", Machine: "m"}
	saved, err := Save(ctx, s, Record{ID: "1", Target: target})
	require.NoError(t, err)
	saved.Target.Node = "another"
	saved, err = Save(ctx, s, saved)
	require.NoError(t, err)
	bare := Record{ID: "2", Target: remediate.Target{Cluster: "c", Namespace: "ns", Machine: strings.Repeat("m", 250)}}
	_, err = Save(ctx, s, bare)
	require.NoError(t, err)
	long := bare
	long.ID, long.Target.Node = "3", strings.Repeat("n", 250)
	_, err = Save(ctx, s, long)
	require.NoError(t, err, "the key has room")
	records, err := s.List(ctx, state.KindMeta)
	require.NoError(t, err)
	for _, r := range records {
		if strings.HasPrefix(r.Key, "asked ") {
			r.Data = []byte("{")
			_, err = s.Put(ctx, r)
			require.NoError(t, err)
		}
	}
	list, err := Load(ctx, s)
	require.NoError(t, err)
	found := map[string]remediate.Target{}
	for _, r := range list {
		assert.Contains(t, r.Unreadable, r.Key)
		assert.True(t, r.Blocking())
		found[r.ID] = r.Target
	}
	long.Target.Namespace, long.Target.Machine = "", ""
	assert.Equal(t, map[string]remediate.Target{
		"1": {Cluster: "c d", Node: "n", Namespace: "ns", Machine: "m"}, "2": bare.Target, "3": long.Target,
	}, found)
	_, err = Save(ctx, s, list[0])
	require.Error(t, err, "what it held would be lost")

	_, err = s.Put(ctx, state.Record{Kind: state.KindMeta, Key: "asked c 4 n - -", Data: []byte(`{"v":1,"data":{"id":"5","check":"","target":{"cluster":"c","node":""},"objects":null,"started":"2026-01-01T00:00:00Z"}}`)})
	require.NoError(t, err)
	for _, key := range []string{"asked 6", "asked c %1b[2J n - -", "asked c 7 %zz - -", "asked c 8 - ns -", "asked - 9 n - -"} {
		_, err = s.Put(ctx, state.Record{Kind: state.KindMeta, Key: key, Data: []byte("{")})
		require.NoError(t, err)
	}
	list, err = Load(ctx, s)
	require.ErrorIs(t, err, state.ErrUnreadable)
	require.ErrorContains(t, err, `"asked 6" does not name a target`)
	require.ErrorContains(t, err, `"\x1b[2J" is no name`)
	require.Len(t, list, 4)
	for _, r := range list {
		if r.ID == "4" {
			assert.Contains(t, r.Unreadable, `it holds the record of "5"`)
		}
		require.NoError(t, remove(ctx, s, r), "a person may give it up")
	}
}
