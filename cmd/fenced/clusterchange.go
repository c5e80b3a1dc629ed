package main

import (
	"context"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/manifest"
)

// clusterChange is what a reload does to the list of clusters.
type clusterChange struct {
	d       *fenced
	added   []builtCluster
	removed []string
	engine  *engine.ClusterChange
}

// prepareClusters builds the clusters that next has and the running configuration has not, and asks
// whether those that it has not can be removed. After an error, nothing has changed. Otherwise the
// caller must call apply, which cannot fail: no run begins in a removed cluster any more.
func (d *fenced) prepareClusters(ctx context.Context, running, next config.Config, policies manifest.Policies) (*clusterChange, error) {
	added, removed := config.ClusterChanges(running, next)
	ch := &clusterChange{d: d, removed: removed}
	var options []engine.ClusterOptions
	for _, c := range added {
		built, err := d.clusters.build(next, c, policies)
		if err != nil {
			return nil, err
		}
		ch.added, options = append(ch.added, built), append(options, built.options)
	}
	var err error
	ch.engine, err = d.engine.TakeIn.Clusters(ctx, options, removed)
	return ch, err
}

// apply adds and removes the clusters. It returns when the removed ones have stopped.
func (ch *clusterChange) apply(ctx context.Context) {
	for _, built := range ch.added {
		ch.d.clusters.attach(built)
	}
	ch.engine.Apply(ctx)
	for _, name := range ch.removed {
		ch.d.clusters.detach(name)
		ch.d.metrics.forget(name)
	}
}

// text names the clusters; "" for none.
func (ch *clusterChange) text() string {
	var added []string
	for _, built := range ch.added {
		added = append(added, built.options.Name)
	}
	return config.NameChanges(added, ch.removed, nil)
}
