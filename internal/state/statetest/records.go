package statetest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/must"
)

// The functions below write and read single records, as another instance would or as an earlier
// version has left them. The daemon itself uses a state.Table, or several slots at once.

// SaveHold stores a hold, in place of one with the same key.
func SaveHold(ctx context.Context, s state.Store, h state.Hold) (state.Hold, error) {
	return save(ctx, s, state.Holds, h.Key(), h)
}

// LoadHolds returns all holds, ended ones too, and an error that names each record that cannot be
// read.
func LoadHolds(ctx context.Context, s state.Store) ([]state.Hold, error) {
	return load(ctx, s, state.Holds)
}

// SaveFreeze stores a freeze, in place of one with the same key.
func SaveFreeze(ctx context.Context, s state.Store, f state.Freeze) (state.Freeze, error) {
	return save(ctx, s, state.Freezes, f.RunID, f)
}

// LoadFreezes returns all freezes, released ones too, and an error that names each record that
// cannot be read.
func LoadFreezes(ctx context.Context, s state.Store) ([]state.Freeze, error) {
	return load(ctx, s, state.Freezes)
}

// SaveCluster stores the orders for a cluster, in place of earlier ones.
func SaveCluster(ctx context.Context, s state.Store, c state.Cluster) (state.Cluster, error) {
	return save(ctx, s, state.Clusters, c.Key(), c)
}

// LoadClusters returns all clusters that have a record, state.AllClusters too, and an error that
// names each record that cannot be read.
func LoadClusters(ctx context.Context, s state.Store) ([]state.Cluster, error) {
	return load(ctx, s, state.Clusters)
}

// LoadCluster returns a cluster. Without a record, only the name is set.
func LoadCluster(ctx context.Context, s state.Store, name string) (state.Cluster, error) {
	list, err := LoadClusters(ctx, s)
	for _, c := range list {
		if c.Name == name {
			return c, nil
		}
	}
	return state.Cluster{Name: name}, err
}

// TakeSlot takes a slot for holder.Run and returns whether the run has one now.
func TakeSlot(ctx context.Context, s state.Store, limit int, holder state.Slot) (bool, error) {
	r := state.TakeSlots(ctx, s, []state.SlotRequest{{Holder: holder, Limit: limit}})[0]
	return r.Has, r.Err
}

// FreeSlot frees the slot of a run.
func FreeSlot(ctx context.Context, s state.Store, run string) error {
	_, err := state.FreeSlots(ctx, s, []string{run})
	return err
}

func save[T any](ctx context.Context, s state.Store, records state.RecordType[T], key string, v T) (T, error) {
	return state.NewTable(records, func(T) {}).Update(ctx, s, key, func(T, bool) (T, bool) { return v, true })
}

func load[T any](ctx context.Context, s state.Store, records state.RecordType[T]) ([]T, error) {
	t := state.NewTable(records, func(T) {})
	err := t.Load(ctx, s)
	return t.All(), err
}

// everyKind is a list of its own, so that a kind that state.Kinds lacks is noticed.
var everyKind = []state.Kind{
	state.KindRun, state.KindBackup, state.KindCluster, state.KindPin, state.KindFreeze, state.KindHold, state.KindSlot, state.KindMeta,
}

// Fill puts something of each kind into a store, and a Node of about size bytes.
func Fill(t *testing.T, s state.Store, size int) {
	ctx := t.Context()
	run := remediate.Run{ID: "r1", Step: remediate.PowerOn, Started: time.Now().UTC()}
	must.Do(state.SaveRun(ctx, s, run))(t)
	node := []byte(`{"metadata":{"name":"n","note":"` + strings.Repeat("x", size) + `"}}`)
	require.NoError(t, state.SaveBackup(ctx, s, state.Backup{RunID: run.ID, NodeUID: "u", Node: node, Saved: time.Now()}))
	must.Do(SaveCluster(ctx, s, state.Cluster{Name: "prod", Armed: true}))(t)
	must.Do(state.SavePin(ctx, s, state.Pin{Host: "prod/n"}))(t)
	must.Do(SaveFreeze(ctx, s, state.Freeze{RunID: run.ID, Host: "prod/n"}))(t)
	must.Do(SaveHold(ctx, s, state.Hold{Cluster: "prod", Node: "n", By: "ann"}))(t)
	taken := must.Do(TakeSlot(ctx, s, 1, state.Slot{Cluster: "c", Run: run.ID}))(t)
	require.True(t, taken)
	must.Do(s.Put(ctx, state.Record{Kind: state.KindMeta, Key: "more", Data: []byte{0xff, '\n'}}))(t)
}

// Records returns all records of a store but its id, without their versions.
func Records(t *testing.T, s state.Store) (all []state.Record) {
	for _, kind := range everyKind {
		list := must.Do(s.List(t.Context(), kind))(t)
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
	n := must.Do(state.Export(t.Context(), s, &out))(t)
	require.Equal(t, len(Records(t, s)), n)
	return out.Bytes()
}
