package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/state"
)

// How long what has ended is kept. A backup outlives its run by a week, so that
// a person can still look up what a Node carried.
const (
	keepRuns    = 90 * 24 * time.Hour
	keepBackups = 7 * 24 * time.Hour
	pruneEvery  = time.Hour
)

// prune drops old runs and backups until ctx ends. Open runs, and the backups
// of open runs, stay however old they are. // I21
func (e *Engine) prune(ctx context.Context) error {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		e.pruneOnce(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (e *Engine) pruneOnce(ctx context.Context, now time.Time) {
	open, known := map[string]bool{}, map[string]bool{}
	for _, c := range e.clusters {
		for _, r := range c.openRuns() {
			open[r.ID] = true
		}
		c.dropEnded(now.Add(-keepRuns))
		for _, r := range e.Runs(c.opt.Name) {
			known[r.ID] = true
		}
	}
	_, err := state.PruneBackups(ctx, e.opt.Store, now.Add(-keepBackups), func(run string) bool { return open[run] })
	if err == nil {
		_, err = state.PruneRuns(ctx, e.opt.Store, now.Add(-keepRuns))
	}
	if err == nil {
		err = e.freezes.prune(ctx, e.opt.Store, func(run string) bool { return known[run] })
	}
	if err != nil && ctx.Err() == nil {
		e.opt.Events.Emit(Event{Type: EventInternal, Message: "prune old records: " + err.Error()})
	}
}

func (c *cluster) dropEnded(before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.runs {
		if !r.Open() && r.Ended.Before(before) {
			delete(c.runs, id) // it had ended: nothing changes for the checks
		}
	}
}
