package statetest

import (
	"context"

	"github.com/fenced/fenced/internal/state"
)

// The functions below write and read single records, as another instance would or as an earlier
// version has left them. The daemon itself uses a state.Table, or several slots at once.

// SaveHold stores a hold, in place of one with the same key.
func SaveHold(ctx context.Context, s state.Store, h state.Hold) (state.Hold, error) {
	return save(ctx, s, state.NewHolds, h.Key(), h)
}

// LoadHolds returns all holds, ended ones too, and an error that names each record that cannot be
// read.
func LoadHolds(ctx context.Context, s state.Store) ([]state.Hold, error) {
	return load(ctx, s, state.NewHolds)
}

// SaveFreeze stores a freeze, in place of one with the same key.
func SaveFreeze(ctx context.Context, s state.Store, f state.Freeze) (state.Freeze, error) {
	return save(ctx, s, state.NewFreezes, f.RunID, f)
}

// LoadFreezes returns all freezes, released ones too, and an error that names each record that
// cannot be read.
func LoadFreezes(ctx context.Context, s state.Store) ([]state.Freeze, error) {
	return load(ctx, s, state.NewFreezes)
}

// SaveCluster stores the orders for a cluster, in place of earlier ones.
func SaveCluster(ctx context.Context, s state.Store, c state.Cluster) (state.Cluster, error) {
	return save(ctx, s, state.NewClusters, c.Key(), c)
}

// LoadClusters returns all clusters that have a record, state.AllClusters too, and an error that
// names each record that cannot be read.
func LoadClusters(ctx context.Context, s state.Store) ([]state.Cluster, error) {
	return load(ctx, s, state.NewClusters)
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

func save[T any](ctx context.Context, s state.Store, newTable func(changed func(T)) *state.Table[T], key string, v T) (T, error) {
	return newTable(func(T) {}).Update(ctx, s, key, func(T, bool) (T, bool) { return v, true })
}

func load[T any](ctx context.Context, s state.Store, newTable func(changed func(T)) *state.Table[T]) ([]T, error) {
	t := newTable(func(T) {})
	err := t.Load(ctx, s)
	return t.All(), err
}
