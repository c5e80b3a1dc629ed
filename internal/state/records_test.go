package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/test/must"
)

func TestClusters(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	for _, name := range []string{"prod", state.AllClusters} {
		c := must.Do(statetest.LoadCluster(ctx, s, name))(t)
		require.Equal(t, state.Cluster{Name: name}, c, "lost state is neither armed nor paused")
		c.Armed, c.ArmedBy, c.ArmedAt = true, "uid 0", noon
		c.Paused, c.PausedBy, c.PausedReason, c.PausedAt = true, "uid 1000", "network work on "+name, noon
		saved := must.Do(statetest.SaveCluster(ctx, s, c))(t)
		got := must.Do(statetest.LoadCluster(ctx, s, name))(t)
		require.Equal(t, saved, got)
	}
	list := must.Do(statetest.LoadClusters(ctx, s))(t)
	require.Len(t, list, 2)
	require.Equal(t, state.AllClusters, list[0].Name)

	must.Do(s.Put(ctx, state.Record{Kind: state.KindCluster, Key: "bad", Data: []byte(`{"v":2}`)}))(t)
	_, err := statetest.LoadCluster(ctx, s, "bad")
	require.ErrorIs(t, err, state.ErrFuture, "unreadable is not the same as never armed")
	list, err = statetest.LoadClusters(ctx, s)
	require.ErrorIs(t, err, state.ErrFuture)
	require.Len(t, list, 2)
}

// A cluster of that name would overwrite the orders for all clusters.
func TestClusterNamedLikeTheKeyOfAll(t *testing.T) {
	s := openStore(t)
	_, err := statetest.SaveCluster(t.Context(), s, state.Cluster{Name: "*"})
	require.ErrorContains(t, err, "reserved")
	c := must.Do(statetest.LoadCluster(t.Context(), s, state.AllClusters))(t)
	require.Zero(t, c.Version)
}

func TestPins(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	_, err := state.LoadPin(ctx, s, "prod/worker-3")
	require.ErrorIs(t, err, state.ErrNotFound)
	pin := state.Pin{Host: "prod/worker-3", Address: "ipmi://192.0.2.13:623", SystemUUID: "4c4c4544-0042-3510-8052-b4c04f4d3332", BMCUUID: "x", At: noon}
	saved := must.Do(state.SavePin(ctx, s, pin))(t)
	_, err = state.SavePin(ctx, s, pin)
	require.ErrorIs(t, err, state.ErrExists, "a pin is never replaced in silence") // I10
	got := must.Do(state.LoadPin(ctx, s, pin.Host))(t)
	require.Equal(t, saved, got)
	pins := must.Do(state.LoadPins(ctx, s))(t)
	require.Equal(t, []state.Pin{saved}, pins)
	_, err = state.SavePin(ctx, s, state.Pin{})
	require.Error(t, err)
}

// The record of all clusters has no cluster name, so an error describes it.
func TestErrorNamesTheRecordOfAllClusters(t *testing.T) {
	s := openStore(t)
	require.NoError(t, s.Close())
	_, err := statetest.SaveCluster(t.Context(), s, state.Cluster{Name: state.AllClusters})
	require.ErrorContains(t, err, "save the record of all clusters: ")
	_, err = statetest.SaveCluster(t.Context(), s, state.Cluster{Name: "prod"})
	require.ErrorContains(t, err, `save cluster "prod": `)
}

// A quarantine and a person's hold of the same Node are two records.
func TestQuarantineStandsBesideAHold(t *testing.T) {
	s := openStore(t)
	hold := must.Do(statetest.SaveHold(t.Context(), s, state.Hold{Cluster: "prod", Node: "n", By: "ann"}))(t)
	quarantine := must.Do(statetest.SaveHold(t.Context(), s, state.Hold{Cluster: "prod", Node: "n", By: "fenced", Quarantine: true}))(t)
	all := must.Do(statetest.LoadHolds(t.Context(), s))(t)
	require.ElementsMatch(t, []state.Hold{hold, quarantine}, all)
	require.NoError(t, state.NewTable(state.Holds, func(state.Hold) {}).Delete(t.Context(), s, hold))
	all = must.Do(statetest.LoadHolds(t.Context(), s))(t)
	require.Equal(t, []state.Hold{quarantine}, all)
}

func TestFreezes(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	f := state.Freeze{RunID: "r1", Host: "prod/n", Cluster: "prod", Node: "n", Devices: "192.0.2.1", Class: "dell r650 6.10", Reason: "the Lease moved", At: noon}
	saved := must.Do(statetest.SaveFreeze(ctx, s, f))(t)
	require.True(t, saved.Active())
	saved.ReleasedBy, saved.ReleasedReason, saved.ReleasedAt = "ada", "board replaced", noon.Add(time.Hour)
	saved = must.Do(statetest.SaveFreeze(ctx, s, saved))(t)
	require.False(t, saved.Active())

	must.Do(s.Put(ctx, state.Record{Kind: state.KindFreeze, Key: "bad", Data: []byte(`{"v":1,"data":{"runID":"other"}}`)}))(t)
	list, err := statetest.LoadFreezes(ctx, s)
	require.ErrorContains(t, err, `"other"`, "one that cannot be read is never taken for none")
	require.Equal(t, []state.Freeze{saved}, list)
}

// A record that cannot be read does not stop the start of a daemon, and is overwritten.
func TestRefusalsThatCannotBeRead(t *testing.T) {
	s := openStore(t)
	saved := must.Do(state.SaveRefusedAccounts(t.Context(), s, state.RefusedAccounts{Instance: "a", Accounts: []state.RefusedAccount{{Service: "x", User: "u"}}}))(t)
	loaded := must.Do(state.LoadRefusedAccounts(t.Context(), s, "a"))(t)
	assert.Equal(t, saved, loaded)

	meta := must.Do(s.List(t.Context(), state.KindMeta))(t)
	for _, r := range meta {
		if r.Version == saved.Version {
			r.Data = []byte("?")
			must.Do(s.Put(t.Context(), r))(t)
		}
	}
	loaded = must.Do(state.LoadRefusedAccounts(t.Context(), s, "a"))(t)
	assert.Empty(t, loaded.Accounts)
	assert.NotEqual(t, saved.Version, loaded.Version)
	must.Do(state.SaveRefusedAccounts(t.Context(), s, loaded))(t)
}
