package main

import (
	"context"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/etcdstore"
)

// openStore opens the state: a file for this daemon alone, or an etcd that several
// share.
func openStore(ctx context.Context, c config.State) (state.Store, error) {
	if c.Engine != config.EngineEtcd {
		return boltstore.Open(c.Path)
	}
	e := c.Etcd
	return etcdstore.Open(ctx, etcdstore.Config{Endpoints: e.Endpoints, CA: e.CA, Cert: e.Cert, Key: e.Key, Prefix: e.Prefix})
}

// owners says which clusters this daemon acts on among those that share its store; nil
// is all.
func (d *fenced) owners(instance string) (state.Owners, error) {
	if d.cfg.State.Engine != config.EngineEtcd {
		return nil, nil
	}
	return etcdstore.NewOwners(d.store, etcdstore.OwnersConfig{Instance: instance})
}
