package upgrade_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/statetest"
)

// kinds are those of all records.
var kinds = []state.Kind{state.KindRun, state.KindBackup, state.KindCluster, state.KindPin, state.KindFreeze, state.KindHold, state.KindSlot, state.KindMeta}

// openFixture opens a copy of the old state file.
func openFixture(t *testing.T) state.Store {
	s, err := boltstore.Open(filepath.Join(fixtures(t), stateFile))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// loadAll reads the records of one kind without error.
func loadAll[T any](t *testing.T, s state.Store, load func(context.Context, state.Store) ([]T, error)) []T {
	t.Helper()
	list, err := load(t.Context(), s)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return list
}

// Each record means today what it meant to the version before: every field.
func TestRecordsMeanTheSame(t *testing.T) {
	s := openFixture(t)
	id, err := state.ID(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, storeID, id)
	assert.Equal(t, []state.Hold{releasedHold, maintenance, quarantine}, unversioned(loadAll(t, s, statetest.LoadHolds)))
	assert.Equal(t, clusters, unversioned(loadAll(t, s, statetest.LoadClusters)))
	assert.Equal(t, freezes, unversioned(loadAll(t, s, statetest.LoadFreezes)))
	assert.Equal(t, pins, unversioned(loadAll(t, s, state.LoadPins)))
	assert.Equal(t, slots, unversioned(loadAll(t, s, state.LoadSlots)))
	accounts, err := state.LoadRefusedAccounts(t.Context(), s, instance)
	require.NoError(t, err)
	assert.Equal(t, []state.RefusedAccounts{refusedAccounts}, unversioned([]state.RefusedAccounts{accounts}))

	runs := map[string]remediate.Run{}
	for _, r := range unversioned(loadAll(t, s, state.LoadRuns)) {
		runs[r.ID] = r
	}
	for _, want := range openRuns {
		assert.Equal(t, want, runs[want.ID])
	}
	ends := map[string]remediate.Step{}
	for id, r := range runs {
		ends[id] = r.Step
	}
	assert.Equal(t, map[string]remediate.Step{
		isolatedRun: remediate.PowerOn, deletingRun: remediate.DeleteNode, cuttingRun: remediate.PowerOff,
		restoredRun: remediate.Done, quarantinedRun: remediate.Done, forgivenRun: remediate.Aborted,
		confirmedRun: remediate.Held, miswiredRun: remediate.Held, lyingRun: remediate.Held,
	}, ends)
	saved, err := state.Backups(t.Context(), s, isolatedRun)
	require.NoError(t, err)
	require.Len(t, saved, 1)
	assert.Equal(t, state.Backup{RunID: isolatedRun, NodeUID: "uid-1", ResourceVersion: backedUp, Saved: at("00:15:30.000000001"), Node: saved[0].Node}, saved[0])
	assert.JSONEq(t, `{"name":"isolated","uid":"uid-1","resourceVersion":`+backedUp+`,"bootID":"isolated-boot-1",
		"systemUUID":"4c4c4544-0042-3510-8054-b4c04f4d3100","labels":{"hostname":"isolated","zone":"zone-a","rack":"r1","team":"of-isolated"},
		"taints":["dedicated=isolated:NoSchedule"],"cordoned":true,"ready":"Unknown","since":"2000-01-01T00:14:27Z","controlPlane":false}`, string(saved[0].Node))
}

// Whoever reads a record and saves it as it is changes nothing in it: no key, no value.
// So the version before reads it again after a downgrade.
func TestRecordsAreWrittenAsBefore(t *testing.T) {
	s := openFixture(t)
	before := records(t, s)
	require.Equal(t, 39, len(before))
	resave(t, s)
	after := records(t, s)
	assert.Equal(t, len(before), len(after))
	for name, old := range before {
		now := after[name]
		if name == string(state.KindMeta)+" store-id" {
			assert.Equal(t, old, now, "it is no JSON, and stays for ever")
			continue
		}
		assert.Greater(t, now.Version, old.Version, "%s was not saved", name)
		was, is := generic(t, old.Data), generic(t, now.Data)
		if old.Kind == state.KindBackup { // the first one and the newest of a Node are kept
			list := is.(map[string]any)["data"].([]any)
			assert.Equal(t, list[0], list[1])
			is.(map[string]any)["data"] = list[:1]
		}
		assert.Equal(t, was, is, name)
	}
}

// records are all of a store, by kind and key.
func records(t *testing.T, s state.Store) map[string]state.Record {
	t.Helper()
	all := map[string]state.Record{}
	for _, kind := range kinds {
		list, err := s.List(t.Context(), kind)
		require.NoError(t, err)
		for _, r := range list {
			all[string(kind)+" "+r.Key] = r
		}
	}
	return all
}

// resave reads every record and saves it as it is.
func resave(t *testing.T, s state.Store) {
	ctx := t.Context()
	again := func(_ any, err error) { require.NoError(t, err) }
	for _, r := range loadAll(t, s, state.LoadRuns) {
		again(state.SaveRun(ctx, s, r))
		saved, err := state.Backups(ctx, s, r.ID)
		require.NoError(t, err)
		for _, b := range saved {
			require.NoError(t, state.SaveBackup(ctx, s, b))
		}
	}
	for _, c := range loadAll(t, s, statetest.LoadClusters) {
		again(statetest.SaveCluster(ctx, s, c))
	}
	for _, p := range loadAll(t, s, state.LoadPins) {
		again(state.SavePin(ctx, s, p))
	}
	for _, f := range loadAll(t, s, statetest.LoadFreezes) {
		again(statetest.SaveFreeze(ctx, s, f))
	}
	for _, h := range loadAll(t, s, statetest.LoadHolds) {
		again(statetest.SaveHold(ctx, s, h))
	}
	for _, x := range loadAll(t, s, state.LoadSlots) { // one that is given back is taken again
		require.NoError(t, statetest.FreeSlot(ctx, s, x.Run))
		again(statetest.TakeSlot(ctx, s, len(slots), x))
	}
	accounts, err := state.LoadRefusedAccounts(ctx, s, instance)
	require.NoError(t, err)
	again(state.SaveRefusedAccounts(ctx, s, accounts))
}

// unversioned are records without the numbers that a store gives them, none of which is 0.
func unversioned[T any](list []T) []T {
	out := make([]T, 0, len(list))
	for _, each := range list {
		var version *uint64
		switch r := any(&each).(type) {
		case *remediate.Run:
			version = &r.Version
		case *state.Hold:
			version = &r.Version
		case *state.Cluster:
			version = &r.Version
		case *state.Freeze:
			version = &r.Version
		case *state.Pin:
			version = &r.Version
		case *state.Slot:
			version = &r.Version
		case *state.RefusedAccounts:
			version = &r.Version
		}
		if *version == 0 {
			panic("a record that was read has no version")
		}
		*version = 0
		out = append(out, each)
	}
	return out
}
