package statetest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// everyKind is a list of its own, so that a kind that state.Kinds lacks is noticed.
var everyKind = []state.Kind{
	state.KindRun, state.KindBackup, state.KindCluster, state.KindPin, state.KindFreeze, state.KindHold, state.KindSlot, state.KindMeta,
}

// Fill puts something of each kind into a store, and a Node of about size bytes.
func Fill(t *testing.T, s state.Store, size int) {
	ctx := t.Context()
	run := remediate.Run{ID: "r1", Step: remediate.PowerOn, Started: time.Now().UTC()}
	_, err := state.SaveRun(ctx, s, run)
	require.NoError(t, err)
	node := []byte(`{"metadata":{"name":"n","note":"` + strings.Repeat("x", size) + `"}}`)
	require.NoError(t, state.SaveBackup(ctx, s, state.Backup{RunID: run.ID, NodeUID: "u", Node: node, Saved: time.Now()}))
	_, err = SaveCluster(ctx, s, state.Cluster{Name: "prod", Armed: true})
	require.NoError(t, err)
	_, err = state.SavePin(ctx, s, state.Pin{Host: "prod/n"})
	require.NoError(t, err)
	_, err = SaveFreeze(ctx, s, state.Freeze{RunID: run.ID, Host: "prod/n"})
	require.NoError(t, err)
	_, err = SaveHold(ctx, s, state.Hold{Cluster: "prod", Node: "n", By: "ann"})
	require.NoError(t, err)
	taken, err := TakeSlot(ctx, s, 1, state.Slot{Cluster: "c", Run: run.ID})
	require.NoError(t, err)
	require.True(t, taken)
	_, err = s.Put(ctx, state.Record{Kind: state.KindMeta, Key: "more", Data: []byte{0xff, '\n'}})
	require.NoError(t, err)
}

// Records returns all records of a store but its id, without their versions.
func Records(t *testing.T, s state.Store) (all []state.Record) {
	for _, kind := range everyKind {
		list, err := s.List(t.Context(), kind)
		require.NoError(t, err)
		for _, r := range list {
			if r.Key != "store-id" {
				r.Version = 0
				all = append(all, r)
			}
		}
	}
	return all
}

// Export returns the export of a store.
func Export(t *testing.T, s state.Store) []byte {
	var out bytes.Buffer
	n, err := state.Export(t.Context(), s, &out)
	require.NoError(t, err)
	require.Equal(t, len(Records(t, s)), n)
	return out.Bytes()
}
