package engine

import (
	"context"
	"errors"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
)

// led is the cluster as its Lead and its runs see it.
type led struct{ *cluster }

// guard acts on one cluster until its claim ends.
func (e *Engine) guard(ctx context.Context, claim state.Claim) {
	if c := e.clusters[claim.Cluster]; c != nil {
		c.lead.Guard(ctx, claim)
	}
}

// Load implements lead.Cluster. A record that cannot be read may be that of an open run:
// then nothing is begun. // I20
func (c led) Load(ctx context.Context, s state.Store, begin func()) error {
	if err := errors.Join(c.e.reload(ctx), c.e.hosts.LoadPins(ctx, c.e.opt.Store)); err != nil {
		return err
	}
	runs, err := c.storedRuns(ctx)
	if err != nil {
		return err
	}
	if err := c.e.hosts.CompleteFreezes(ctx, s, runs); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs, c.moved = runs, true
	begin()
	return nil
}

// Resume implements lead.Cluster.
func (c led) Resume() {
	for _, r := range c.openRuns() {
		c.runner.Start(r, nil)
	}
}

// Release implements lead.Cluster.
func (c led) Release() { c.forget(nil) } // the sessions of probes

// MayAct implements lead.Cluster.
func (c led) MayAct() bool {
	if c.armed() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runs {
		if r.Open() {
			return true
		}
	}
	return false
}

// Unsettled implements lead.Cluster. A run that is not stored yet takes its slot by
// itself, or not at all. // I11
func (c led) Unsettled(taken map[string]bool) (lacking, needless []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.runs {
		if inFlight(r) && r.Version > 0 && !taken[id] {
			lacking = append(lacking, id)
		}
	}
	for id := range taken {
		if r, known := c.runs[id]; !known || !inFlight(r) {
			needless = append(needless, id)
		}
	}
	return lacking, needless
}

// Wake implements lead.Cluster.
func (c led) Wake() { c.wake() }

// Clock implements run.Cluster.
func (c led) Clock() (agrees remediate.Answer, wrong string) {
	return c.clockAgrees(), c.skewed(c.view())
}

// RenamedTo implements run.Cluster.
func (c led) RenamedTo(r remediate.Run) (node string, unseen bool) { return c.elsewhere(r) }

// Quorum implements run.Cluster.
func (c led) Quorum(r remediate.Run, f run.Fresh) (reason.Code, string) { return c.quorum(r, f) }

// Save implements run.Cluster.
func (c led) Save(ctx context.Context, r remediate.Run) (remediate.Run, error) { return c.save(ctx, r) }

// Show implements run.Cluster.
func (c led) Show(r remediate.Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[r.ID], c.moved = r, true
}

// Record implements run.Cluster.
func (c led) Record(ev event.Event) (event.Event, error) { return c.recorded(ev) }
