package main

import (
	"context"
	"errors"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/etcdstore"
)

// useStore opens the store of the daemon and reads its ID.
func (d *fenced) useStore(ctx context.Context) (err error) {
	if d.store, err = openWhole(ctx, d.cfg.State); err != nil {
		return err
	}
	if d.storeID, err = state.ID(ctx, d.store); err != nil {
		return errors.Join(err, d.store.Close())
	}
	return nil
}

// openStore opens the state: a file for this daemon alone, or an etcd that several
// share.
func openStore(ctx context.Context, c config.State) (state.Store, error) {
	if c.Engine != config.EngineEtcd {
		return boltstore.Open(c.Path)
	}
	e := c.Etcd
	return etcdstore.Open(ctx, etcdstore.Config{Endpoints: e.Endpoints, CA: e.CA, Cert: e.Cert, Key: e.Key, Prefix: e.Prefix})
}

// openWhole opens the state, and refuses what an import left half done: only another
// import cures that.
func openWhole(ctx context.Context, c config.State) (state.Store, error) {
	s, err := openStore(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := state.CheckComplete(ctx, s); err != nil {
		if errors.Is(err, state.ErrIncompleteImport) {
			err = configError{err}
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// owners says which clusters this daemon acts on among those that share its store; nil
// is all.
func (d *fenced) owners(instance string) (state.Owners, error) {
	if d.cfg.State.Engine != config.EngineEtcd {
		return nil, nil
	}
	return etcdstore.NewOwners(d.store, etcdstore.OwnersConfig{Instance: instance})
}
