package etcdstore

import (
	"context"

	"github.com/fenced/fenced/internal/state"
)

// claimed is the store under a claim: each write also compares the epoch, so that of
// two instances which both think that they own a cluster only one can write. // I19
type claimed struct {
	*store
	reign fencingToken
}

// Put implements state.Store.
func (c claimed) Put(ctx context.Context, r state.Record) (uint64, error) {
	return c.putUnder(ctx, c.reign, r)
}

// Delete implements state.Store.
func (c claimed) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	return c.deleteUnder(ctx, c.reign, kind, key, version)
}

// Close implements state.Store: the claim ends by itself, and the store is another's.
func (c claimed) Close() error { return nil }
