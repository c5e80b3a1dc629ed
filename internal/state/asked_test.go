package state_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

func TestAsked(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := escalate.Record{
		ID: "1", Check: "FencePolicy.fenced.io p", Target: remediate.Target{Cluster: "c", Node: "n"}, Started: at,
		Objects: []escalate.Object{{APIVersion: "a/v1", Kind: "K", Namespace: "ns", Name: "n", Template: "t", Mark: "s/c/1", Made: at}},
	}
	saved, err := state.SaveAsked(ctx, s, r)
	require.NoError(t, err)
	_, err = state.SaveAsked(ctx, s, r)
	require.ErrorIs(t, err, state.ErrExists)
	saved.Objects[0].UID = "u"
	saved, err = state.SaveAsked(ctx, s, saved)
	require.NoError(t, err)
	_, err = state.SaveRefusedAccounts(ctx, s, state.RefusedAccounts{Instance: "a"}) // of the same kind
	require.NoError(t, err)
	list, err := state.LoadAsked(ctx, s)
	require.NoError(t, err)
	assert.Equal(t, []escalate.Record{saved}, list)

	_, err = state.SaveAsked(ctx, s, escalate.Record{ID: "2"})
	require.ErrorContains(t, err, "no cluster")
	require.NoError(t, state.DeleteAsked(ctx, s, saved))
	list, _ = state.LoadAsked(ctx, s)
	assert.Empty(t, list)
}

// A record that cannot be read still says on what nobody may act, even if its target has another
// Node since. Only one whose key says nothing is an error.
func TestAskedThatCannotBeRead(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	target := remediate.Target{Cluster: "c d", Node: "n", NodeUID: "u", Namespace: "ns", Machine: "m"}
	saved, err := state.SaveAsked(ctx, s, escalate.Record{ID: "1", Target: target})
	require.NoError(t, err)
	saved.Target.Node = "another"
	saved, err = state.SaveAsked(ctx, s, saved)
	require.NoError(t, err)
	bare := escalate.Record{ID: "2", Target: remediate.Target{Cluster: "c", Namespace: "ns", Machine: strings.Repeat("m", 250)}}
	_, err = state.SaveAsked(ctx, s, bare)
	require.NoError(t, err)
	long := bare
	long.ID, long.Target.Node = "3", strings.Repeat("n", 250)
	_, err = state.SaveAsked(ctx, s, long)
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
	list, err := state.LoadAsked(ctx, s)
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
	_, err = state.SaveAsked(ctx, s, list[0])
	require.Error(t, err, "what it held would be lost")

	_, err = s.Put(ctx, state.Record{Kind: state.KindMeta, Key: "asked c 4 n - -", Data: []byte(`{"v":1,"data":{"id":"5","check":"","target":{"cluster":"c","node":""},"objects":null,"started":"2026-01-01T00:00:00Z"}}`)})
	require.NoError(t, err)
	for _, key := range []string{"asked 6", "asked c %1b[2J n - -", "asked c 7 %zz - -", "asked c 8 - ns -", "asked - 9 n - -"} {
		_, err = s.Put(ctx, state.Record{Kind: state.KindMeta, Key: key, Data: []byte("{")})
		require.NoError(t, err)
	}
	list, err = state.LoadAsked(ctx, s)
	require.ErrorIs(t, err, state.ErrUnreadable)
	require.ErrorContains(t, err, `"asked 6" does not name a target`)
	require.ErrorContains(t, err, `"\x1b[2J" is no name`)
	require.Len(t, list, 4)
	for _, r := range list {
		if r.ID == "4" {
			assert.Contains(t, r.Unreadable, `it holds the record of "5"`)
		}
		require.NoError(t, state.DeleteAsked(ctx, s, r), "a person may give it up")
	}
}
