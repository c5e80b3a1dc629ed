package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

// How long ended runs and Node backups are kept. A backup outlives its run by a week, so
// that a person can still look up the labels and taints of the Node.
const (
	keepRuns    = 90 * 24 * time.Hour
	keepBackups = 7 * 24 * time.Hour
	pruneEvery  = time.Hour
	pruneRetry  = time.Second // while this instance owns no cluster
)

// runPrune removes old runs and backups until ctx ends. Open runs, and the backups of open
// runs, stay however old they are. The age is by the clock that is behind, so that a clock
// that is ahead removes nothing too early. // I21
func (e *Engine) runPrune(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		next := pruneEvery
		if now := e.stop.EndBy(state.AllClusters); now.IsZero() || !e.pruneOnce(ctx, now) {
			next = pruneRetry
		}
		timer.Reset(next)
	}
}

// pruneOnce removes old records. On an instance that owns no cluster it changes no record
// and returns false.
func (e *Engine) pruneOnce(ctx context.Context, now time.Time) bool {
	var store state.Store // with the epoch of an owner
	for _, c := range e.clusters.All() {
		c.model.Forget(now.Add(-keepRuns), now.Add(-24*time.Hour))
		if c.lead.Leads() {
			store = c.lead.Store()
		}
	}
	if store == nil {
		return false
	}
	open, known := map[string]bool{}, map[string]bool{}
	runs, aside, err := state.LoadAllRuns(ctx, store) // includes clusters that are not configured here
	for _, r := range runs {
		open[r.ID], known[r.ID] = r.Open(), true
	}
	for _, r := range aside {
		known[r.ID] = true
	}
	if err == nil { // a run that cannot be read may be open
		_, err = state.PruneBackups(ctx, store, now.Add(-keepBackups), func(run string) bool { return open[run] })
	}
	if err == nil {
		_, err = state.PruneRuns(ctx, store, now.Add(-keepRuns))
	}
	if err == nil {
		err = e.hosts.Freezes.Prune(ctx, store, func(run string) bool { return known[run] })
	}
	if err == nil {
		err = e.stop.Prune(ctx, store, now.Add(-keepRuns)) // I23
	}
	if err != nil && ctx.Err() == nil {
		e.opt.Events.Emit(event.Event{Type: event.Internal, Message: "prune old records: " + err.Error()})
	}
	return true
}

// asideShown is how many records that were set aside an event names.
const asideShown = 3

// asideEvent tells which ended runs are not read.
func asideEvent(aside []state.AsideRun) event.Event {
	var errs []error
	for _, r := range aside[:min(len(aside), asideShown)] {
		errs = append(errs, r.Err)
	}
	return event.Event{Type: event.Internal, Message: fmt.Sprintf(
		"the records of %d runs that have ended cannot be read and are set aside: they count in no limit, and stay in the store, where fencectl export finds them: %s",
		len(aside), bmc.Printable(strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "), maxUnreadText))}
}
