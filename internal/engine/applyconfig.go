package engine

import (
	"context"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/remediate"
)

// ApplyConfig gives the engine what a reload may change while runs are open. The caller has checked
// all of it before, the clusters with Clusters: nothing else here can fail, so nothing is applied
// by half.
type ApplyConfig struct{ e *Engine }

// Hosts applies the content of hosts.d.
func (t ApplyConfig) Hosts(ctx context.Context, inventory hosts.Inventory) {
	t.e.hosts.ReplaceInventory(ctx, inventory)
}

// Policies takes in the checks and budgets of policies.d for one cluster. The cluster switches
// to them between two decisions; with more to act on it begins with the quiet period. // I18
func (t ApplyConfig) Policies(cluster string, f cluster.Files) {
	if c := t.e.clusters.Get(cluster); c != nil {
		c.admit.Policies.Replace(f)
	}
}

// Stops lists what is stopped under the name of one cluster: its pause, and its holds. Another name has none of
// them. // I23
func (t ApplyConfig) Stops(cluster string) []string { return t.e.stop.OfCluster(cluster) }

// Limits applies the guards and the limits of new runs, for all clusters at once. Open runs
// keep those of their start.
func (t ApplyConfig) Limits(g guard.Limits, r remediate.Limits) {
	t.e.limits.Replace(g, r)
	for _, c := range t.e.clusters.All() {
		c.admit.Wake()
	}
}
