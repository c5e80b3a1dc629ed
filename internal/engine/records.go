package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

const (
	// resyncPause is the minimum time between two of them: an instance that fences writes
	// many records.
	resyncPause = 250 * time.Millisecond
	resyncRetry = time.Second
	// resyncTime is enough for a few calls that are each answered just before their timeout:
	// an instance must be able to take a cluster over with a slow store, too.
	resyncTime = 30 * time.Second
	// followEvery is the time after a change until follow reads the runs and pins of other
	// instances. No decision of this instance depends on them.
	followEvery = 5 * time.Second
	// rereadEvery is how often an instance that may act reads pauses, holds and freezes again.
	rereadEvery = time.Second
)

// runResync reads what other instances write, until ctx ends: people may set a pause or a
// hold at any instance.
func (e *Engine) runResync(ctx context.Context) error {
	changed := e.opt.Store.Watch(ctx)
	var follow <-chan time.Time
	var told event.Told[bool]
	for {
		var err error
		pause := resyncPause
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			err = e.resync(ctx)
			if follow == nil {
				follow = time.After(followEvery)
			}
		case <-follow:
			follow = nil
			err = e.follow(ctx)
		}
		if err != nil {
			pause, follow = resyncRetry, time.After(resyncRetry)
		}
		if told.News(err != nil) && ctx.Err() == nil {
			e.opt.Events.Emit(event.Event{Type: event.Internal, Message: "read what other instances have written to the store; it is tried again every second: " + err.Error()})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// follow reads everything: also the runs of clusters that other instances own. People can see
// them here, and a standby needs them to evaluate its checks correctly.
func (e *Engine) follow(ctx context.Context) error {
	if err := e.resync(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, resyncTime)
	defer cancel()
	if err := e.followPins(ctx); err != nil {
		return err
	}
	runs, err := state.LoadRuns(ctx, e.opt.Store)
	if err != nil {
		return fmt.Errorf("load runs: %w", err)
	}
	for _, c := range e.clusters.All() {
		if c.model.Runs.Update(runs) {
			c.admit.Wake()
		}
	}
	_, err = e.opt.Escalation.Load(ctx) // after the runs: nothing about it may hold them up
	return err
}

// followPins reads the pins, unless all could be read and the store knows that nobody else has changed one since. Only follow calls it.
func (e *Engine) followPins(ctx context.Context) error {
	var now uint64
	tracking, ok := e.opt.Store.(state.Tracking)
	if ok {
		if now = tracking.Changes(state.KindPin); now == e.pinChanges && e.hosts.UnreadablePins() == nil {
			return nil
		}
	}
	if err := e.hosts.LoadPins(ctx, e.opt.Store); err != nil {
		return err
	}
	e.pinChanges = now
	return nil
}

// stored is what the store has about all clusters, for those whose leadership begins.
type stored struct {
	runs  []remediate.Run
	begin func(cluster string)
}

// takeovers lets clusters that are taken over at the same moment share one read of the store: one instance may own hundreds, and
// the store may have 100,000 pins. A read answers only those who asked before it began, so each gets what a read of its own could
// have returned. // I19, I20
type takeovers struct {
	reading *semaphore.Weighted // one read at a time

	mu   sync.Mutex
	next *takeover // asked for, not begun
}

// takeover is one read. Who reads guards it.
type takeover struct {
	done   bool
	stored stored
	err    error
}

// load returns the result of a read that began after the call.
func (t *takeovers) load(ctx context.Context, read func(context.Context) (stored, error)) (stored, error) {
	t.mu.Lock()
	if t.next == nil {
		t.next = &takeover{}
	}
	mine := t.next
	t.mu.Unlock()
	if err := t.reading.Acquire(ctx, 1); err != nil {
		return stored{}, err
	}
	defer t.reading.Release(1)
	if mine.done {
		return mine.stored, mine.err
	}
	t.mu.Lock()
	if t.next == mine { // from now on nobody can join it
		t.next = nil
	}
	t.mu.Unlock()
	mine.stored, mine.err = read(ctx)
	mine.done = ctx.Err() == nil // else one of the others that wait for it reads
	return mine.stored, mine.err
}

// loadStored reads what a leadership needs to know. It fails if any run cannot be read. // I20
func (e *Engine) loadStored(ctx context.Context) (s stored, err error) {
	if err := errors.Join(e.resync(ctx), e.hosts.LoadPins(ctx, e.opt.Store)); err != nil {
		return s, err
	}
	if s.runs, err = state.LoadRuns(ctx, e.opt.Store); err != nil {
		return s, fmt.Errorf("load runs: %w", err)
	}
	s.begin, err = e.opt.Escalation.Load(ctx)
	return s, err
}

// resync reads pauses, holds, quarantines and freezes, whichever instance owns the clusters.
// A record that cannot be read is no error: it forbids everything. // I20
func (e *Engine) resync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resyncTime)
	defer cancel()
	return errors.Join(
		e.stop.Load(ctx),
		e.stop.NoteUnread(state.KindFreeze, e.hosts.Freezes.Load(ctx, e.opt.Store)),
	)
}

// runReread calls resync every second while this instance may act in a cluster that other
// instances may own, too: it can take long to notice that a watch of the store has ended. It
// does not report an error, because it tries again, and a claim ends without the store. // I23
func (e *Engine) runReread(ctx context.Context) error {
	live.Every(ctx, rereadEvery, nil, func() {
		for _, c := range e.clusters.All() {
			if c.lead.Shared() && (leadCluster{c.model.Runs, c}).MayAct() {
				_ = e.resync(ctx)
				break
			}
		}
	})
	return nil
}

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
	live.Repeat(ctx, nil, func() time.Time {
		if now := e.stop.EndBy(state.AllClusters); now.IsZero() || !e.pruneOnce(ctx, now) {
			return time.Now().Add(pruneRetry)
		}
		return time.Now().Add(pruneEvery)
	})
	return nil
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
	if err == nil {
		err = freeSlots(ctx, store, func(run string) bool { return known[run] && !open[run] })
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
	if err == nil {
		err = e.opt.Escalation.Prune(ctx, store, now.Add(-keepRuns))
	}
	if err != nil && ctx.Err() == nil {
		e.opt.Events.Emit(event.Event{Type: event.Internal, Message: "prune old records: " + err.Error()})
	}
	return true
}

// freeSlots frees the slots of runs that have ended. Each cluster does that for its own, and may have left the configuration before. // I11
func freeSlots(ctx context.Context, store state.Store, hasEnded func(run string) bool) error {
	slots, _ := state.LoadSlots(ctx, store) // a slot that cannot be read is told by who takes or frees one
	var ended []string
	for _, s := range slots {
		if hasEnded(s.Run) {
			ended = append(ended, s.Run)
		}
	}
	_, err := state.FreeSlots(ctx, store, ended)
	return err
}

// asideShown is how many records that were set aside an event names, in maxAsideText bytes.
const asideShown, maxAsideText = 3, 500

// asideEvent tells which ended runs are not read.
func asideEvent(aside []state.AsideRun) event.Event {
	var errs []error
	for _, r := range aside[:min(len(aside), asideShown)] {
		errs = append(errs, r.Err)
	}
	return event.Event{Type: event.Internal, Message: fmt.Sprintf(
		"the records of %d runs that have ended cannot be read and are set aside: they count in no limit, and stay in the store, where fencectl export finds them: %s",
		len(aside), bmc.Printable(strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "), maxAsideText))}
}
