package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
)

func TestFreezes(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	f := state.Freeze{RunID: "r1", Host: "prod/n", Cluster: "prod", Node: "n", Devices: "192.0.2.1", Class: "dell r650 6.10", Reason: "the Lease moved", At: noon}
	saved, err := statetest.SaveFreeze(ctx, s, f)
	require.NoError(t, err)
	require.True(t, saved.Active())
	saved.ReleasedBy, saved.ReleasedReason, saved.ReleasedAt = "ada", "board replaced", noon.Add(time.Hour)
	saved, err = statetest.SaveFreeze(ctx, s, saved)
	require.NoError(t, err)
	require.False(t, saved.Active())

	_, err = s.Put(ctx, state.Record{Kind: state.KindFreeze, Key: "bad", Data: []byte(`{"v":1,"data":{"runID":"other"}}`)})
	require.NoError(t, err)
	list, err := statetest.LoadFreezes(ctx, s)
	require.ErrorContains(t, err, `"other"`, "one that cannot be read is never taken for none")
	require.Equal(t, []state.Freeze{saved}, list)
}
