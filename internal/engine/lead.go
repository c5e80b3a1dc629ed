package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenced/fenced/internal/state"
)

// leadCluster implements lead.Cluster: the cluster for its lead.Lead.
type leadCluster struct{ c *clusterParts }

// guard acts in one cluster until the claim ends.
func (e *Engine) guard(ctx context.Context, claim state.Claim) {
	if c := e.clusters.Get(claim.Cluster); c != nil {
		c.lead.Serve(ctx, claim)
	}
}

// Load implements lead.Cluster. It fails if any run cannot be read, because that run may be
// open: the leadership then does not begin. // I20
func (l leadCluster) Load(ctx context.Context, s state.Store) error {
	e := l.c.e
	if err := errors.Join(e.resync(ctx), e.hosts.LoadPins(ctx, e.opt.Store)); err != nil {
		return err
	}
	runs, err := state.LoadRuns(ctx, e.opt.Store)
	if err != nil {
		return fmt.Errorf("load runs: %w", err)
	}
	begin, err := e.opt.Escalation.Load(ctx)
	if err != nil {
		return err
	}
	if err := e.hosts.Freezes.Complete(ctx, s, l.c.model.Runs.OfCluster(runs)); err != nil {
		return err
	}
	if err := l.c.model.Runs.BeginLeadership(runs); err != nil {
		return err
	}
	begin(l.c.opt.Name)
	return nil
}

// Resume implements lead.Cluster.
func (l leadCluster) Resume() {
	for _, r := range l.c.model.Runs.Open() {
		l.c.admit.Runner.Start(r, nil, nil)
	}
}

// Release implements lead.Cluster.
func (l leadCluster) Release() { l.c.admit.CloseProbes() }

// End implements lead.Cluster.
func (l leadCluster) End() { l.c.model.Runs.EndLeadership() }

// MayAct implements lead.Cluster.
func (l leadCluster) MayAct() bool {
	return l.c.admit.MayBegin() || l.c.model.Runs.AnyOpen() || l.c.admit.ByHand.Acts()
}

// Unsettled implements lead.Cluster. // I11
func (l leadCluster) Unsettled(taken map[string]bool) (lacking, needless []string) {
	return l.c.model.Runs.SlotMismatches(taken)
}

// Wake implements lead.Cluster.
func (l leadCluster) Wake() { l.c.admit.Wake() }
