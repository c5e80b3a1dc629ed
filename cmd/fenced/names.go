package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/remediate"
)

// Names implements api.Daemon.
func (c control) Names(_ context.Context, cluster, prefix string) (api.Names, error) {
	var n api.Names
	for _, cs := range c.engine.Status() {
		if strings.HasPrefix(cs.Name, prefix) {
			n.Clusters = append(n.Clusters, cs.Name)
		}
		if cluster != "" && cluster != cs.Name {
			continue
		}
		nodes, machines := c.engine.Names(cs.Name, prefix)
		n.Nodes, n.Machines = append(n.Nodes, nodes...), append(n.Machines, machines...)
		for i := range cs.Checks {
			k := &cs.Checks[i]
			n.Checks = append(n.Checks, strings.TrimPrefix(k.Namespace+"/"+k.Name, "/"))
		}
	}
	n.Checks = slices.DeleteFunc(n.Checks, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	runs := c.engine.Runs(cluster)
	slices.SortFunc(runs, func(a, b remediate.Run) int { return cmp.Or(b.Began().Compare(a.Began()), cmp.Compare(b.ID, a.ID)) })
	for _, r := range runs {
		if !strings.HasPrefix(r.ID, prefix) {
			continue
		}
		n.Runs = append(n.Runs, r.ID)
		if r.Open() {
			n.OpenRuns = append(n.OpenRuns, r.ID)
		}
	}
	for _, list := range []*[]string{&n.Clusters, &n.Nodes, &n.Machines, &n.Checks} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for _, list := range []*[]string{&n.Clusters, &n.Nodes, &n.Machines, &n.Checks, &n.Runs, &n.OpenRuns} {
		*list = (*list)[:min(len(*list), api.MaxNames)]
	}
	return n, nil
}
