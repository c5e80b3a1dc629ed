package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/event"
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
			e.opt.Events.Emit(event.Event{Type: event.Internal, Message: "read from the store what other instances have written, which is tried again every second: " + err.Error()})
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
	if err := e.hosts.LoadPins(ctx, e.opt.Store); err != nil {
		return err
	}
	runs, err := state.LoadRuns(ctx, e.opt.Store)
	if err != nil {
		return fmt.Errorf("load runs: %w", err)
	}
	for _, c := range e.clusters.All() {
		if c.model.UpdateRuns(runs) {
			c.admit.Wake()
		}
	}
	asked, err := e.asked.load(ctx) // after the runs: nothing about it may hold them up
	if err != nil {
		return err
	}
	for _, c := range e.clusters.All() {
		c.admit.Handovers.Load(asked, false)
	}
	return nil
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
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if e.mayActOnSharedCluster() {
			_ = e.resync(ctx)
		}
	}
}

// mayActOnSharedCluster says whether this instance may act in a cluster that others can own.
func (e *Engine) mayActOnSharedCluster() bool {
	for _, c := range e.clusters.All() {
		if c.lead.Shared() && (leadCluster{c}).MayAct() {
			return true
		}
	}
	return false
}
