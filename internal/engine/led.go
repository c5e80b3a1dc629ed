package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenced/fenced/internal/state"
)

// led is the cluster as its Lead sees it.
type led struct{ c *cluster }

// guard acts on one cluster until its claim ends.
func (e *Engine) guard(ctx context.Context, claim state.Claim) {
	if c := e.clusters[claim.Cluster]; c != nil {
		c.lead.Guard(ctx, claim)
	}
}

// Load implements lead.Cluster. A record that cannot be read may be that of an open run:
// then nothing is begun. // I20
func (l led) Load(ctx context.Context, s state.Store) error {
	e := l.c.e
	if err := errors.Join(e.reload(ctx), e.hosts.LoadPins(ctx, e.opt.Store)); err != nil {
		return err
	}
	runs, err := state.LoadRuns(ctx, e.opt.Store)
	if err != nil {
		return fmt.Errorf("load runs: %w", err)
	}
	if err := e.hosts.CompleteFreezes(ctx, s, l.c.book.Mine(runs)); err != nil {
		return err
	}
	l.c.book.Own(runs)
	return nil
}

// Resume implements lead.Cluster.
func (l led) Resume() {
	for _, r := range l.c.book.OpenRuns() {
		l.c.admit.Runner.Start(r, nil)
	}
}

// Release implements lead.Cluster.
func (l led) Release() { l.c.admit.Release() }

// End implements lead.Cluster.
func (l led) End() { l.c.book.Disown() }

// MayAct implements lead.Cluster.
func (l led) MayAct() bool { return l.c.admit.Armed() || l.c.book.AnyOpen() }

// Unsettled implements lead.Cluster. // I11
func (l led) Unsettled(taken map[string]bool) (lacking, needless []string) {
	return l.c.book.Unsettled(taken)
}

// Wake implements lead.Cluster.
func (l led) Wake() { l.c.admit.Wake() }
