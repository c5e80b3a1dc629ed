package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	if err := d.lostByRenaming(running, next); err != nil {
		return nil, err
	}
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

// maxNamedStops is how many stops a refusal names.
const maxNamedStops = 3

// lostByRenaming refuses to rename a cluster in which somebody has stopped something: a hold belongs to the
// name of its cluster, and the host of a technician would be fenced under the other one. // I23
func (d *fenced) lostByRenaming(running, next config.Config) error {
	var errs []error
	for old, name := range config.Renamed(running, next) {
		stops := d.engine.TakeIn.Stops(old)
		if len(stops) == 0 {
			continue
		}
		text := strings.Join(stops[:min(len(stops), maxNamedStops)], "; ")
		if more := len(stops) - maxNamedStops; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		errs = append(errs, fmt.Errorf("cluster %s cannot be renamed to %s: pauses and holds belong to the name of their cluster, and would bind nothing any more (%s): "+
			"pause everything with fencectl pause, end these, rename it, and give them again before you resume", old, name, text))
	}
	return errors.Join(errs...)
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
