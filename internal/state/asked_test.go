package state_test

import (
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
	for key, data := range map[string]string{"asked 3": "{", "asked 4": `{"v":1,"data":{"id":"5","check":"","target":{"cluster":"c","node":""},"objects":null,"started":"2026-01-01T00:00:00Z"}}`} {
		_, err = s.Put(ctx, state.Record{Kind: state.KindMeta, Key: key, Data: []byte(data)})
		require.NoError(t, err)
	}
	list, err = state.LoadAsked(ctx, s)
	require.ErrorIs(t, err, state.ErrUnreadable)
	require.ErrorContains(t, err, `it holds the record of "5"`)
	assert.Len(t, list, 1, "what can be read is")
	require.NoError(t, state.DeleteAsked(ctx, s, saved))
	list, _ = state.LoadAsked(ctx, s)
	assert.Empty(t, list)
}
