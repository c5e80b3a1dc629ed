package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
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

// changeTime is how long the store may take to say whether a cluster can be removed: systemctl reload waits 30 s, the
// TimeoutStartSec= of the unit, and should then have the reason.
const changeTime = 20 * time.Second

// ClusterChange adds clusters and removes others. It was checked, so that it can be carried out.
type ClusterChange struct {
	e       *Engine
	added   []ClusterOptions
	removed []*clusterParts
	runs    []remediate.Run // as they were in the store
}

// Clusters checks whether these clusters can be added, and those removed. A cluster with an open run
// cannot be removed, whichever instance carries the run out. Without an error, no run begins any
// more in a cluster that is to be removed, and the caller must call Apply; after an error, nothing has
// changed. // I19
func (t ApplyConfig) Clusters(ctx context.Context, added []ClusterOptions, removed []string) (*ClusterChange, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	ch := &ClusterChange{e: t.e, added: added}
	if len(added) == 0 && len(removed) == 0 {
		return ch, nil // a reload of anything else needs no store
	}
	var errs []error
	for _, name := range removed {
		c, err := t.e.cluster(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if open := c.model.Runs.CloseAdmission(); len(open) > 0 {
			errs = append(errs, errOpenRuns(name, open))
			continue
		}
		ch.removed = append(ch.removed, c)
	}
	var err error
	if ch.runs, err = state.LoadRuns(ctx, t.e.opt.Store); err != nil {
		errs = append(errs, fmt.Errorf("load runs: %w", err))
	}
	if _, err := t.e.opt.Escalation.Load(ctx); err != nil {
		errs = append(errs, err)
	}
	for _, c := range ch.removed {
		errs = append(errs, c.whyNotRemoved(ctx, ch.runs))
	}
	if err := errors.Join(errs...); err != nil {
		for _, c := range ch.removed {
			c.model.Runs.OpenAdmission()
			c.admit.Wake()
		}
		return nil, err
	}
	return ch, nil
}

// whyNotRemoved returns what would be left behind in the cluster, whose admission is closed, or in the
// store.
func (c *clusterParts) whyNotRemoved(ctx context.Context, runs []remediate.Run) error {
	name := c.opt.Name
	var open []remediate.Run // of another instance, which this one may not know of yet
	for _, r := range c.model.Runs.OfCluster(runs) {
		if r.Open() {
			open = append(open, r)
		}
	}
	if len(open) > 0 {
		return errOpenRuns(name, open)
	}
	if err := c.e.opt.Escalation.WhyNotRemove(name); err != nil {
		return err
	}
	if !c.lead.Leads() {
		return nil
	}
	for _, s := range c.admit.Requested.States(time.Now()) {
		if s.HasFinalizer {
			return fmt.Errorf("cluster %s cannot be removed yet: fenced's finalizer is still on the %s %s/%s; wait until it is removed", name, s.Ref.Kind, s.Ref.Namespace, s.Ref.Name)
		}
	}
	if err := c.lead.SettleSlots(ctx); err != nil {
		return fmt.Errorf("cluster %s cannot be removed: free the slots of its ended runs: %w", name, err)
	}
	return nil
}

// maxNamedRuns is how many open runs a refusal names.
const maxNamedRuns = 5

func errOpenRuns(cluster string, open []remediate.Run) error {
	var names []string
	for _, r := range open[:min(len(open), maxNamedRuns)] {
		names = append(names, r.ID+" on "+cmp.Or(r.Target.Node, r.Target.MachineKey()))
	}
	if n := len(open) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return fmt.Errorf("cluster %s cannot be removed while a run is open in it (%s): wait until it has ended, or end it with fencectl abort", cluster, strings.Join(names, ", "))
}

// Apply carries the change out. It returns when the removed clusters have stopped.
func (ch *ClusterChange) Apply(ctx context.Context) {
	for _, o := range ch.added {
		newCluster(ch.e, o, true).attach(ctx, ch.runs)
	}
	for _, c := range ch.removed {
		c.detach()
	}
}
