package etcdstore

import (
	"context"

	"github.com/fenced/fenced/internal/state"
)

// claimStore is the store of a claim. Each write also compares the epoch: if two instances
// believe that they own a cluster, only one of them can write. // I19
type claimStore struct {
	*store
	token fencingToken
}

// Put implements state.Store.
func (c claimStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	return c.putWithToken(ctx, c.token, r)
}

// Delete implements state.Store.
func (c claimStore) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	return c.deleteWithToken(ctx, c.token, kind, key, version)
}

// Close implements state.Store. It does nothing: the shared store stays open.
func (c claimStore) Close() error { return nil }
