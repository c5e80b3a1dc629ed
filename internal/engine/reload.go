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
	// reloadPause gathers changes: an instance that fences writes many records.
	reloadPause = 250 * time.Millisecond
	reloadRetry = time.Second
	// reloadTime is more than the store itself takes for a few calls, each of which
	// it answers late: a cluster must be taken over from a slow store, too.
	reloadTime = 30 * time.Second
	// followEvery is how often what nobody decides with here is read again.
	followEvery = 5 * time.Second
	// rereadEvery is how often what forbids something is read again by an instance that
	// might act.
	rereadEvery = time.Second
)

// keepReloaded takes in what other instances write, until ctx ends: people give a
// pause or a hold at any of them.
func (e *Engine) keepReloaded(ctx context.Context) error {
	changed := e.opt.Store.Watch(ctx)
	var follow <-chan time.Time
	failed := false
	for {
		var err error
		pause := reloadPause
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			err = e.reload(ctx)
			if follow == nil {
				follow = time.After(followEvery)
			}
		case <-follow:
			follow = nil
			err = e.follow(ctx)
		}
		if err != nil {
			pause, follow = reloadRetry, time.After(reloadRetry)
		}
		if err != nil && !failed && ctx.Err() == nil {
			e.opt.Events.Emit(event.Event{Type: event.Internal, Message: "read what other instances have written, which is tried again: " + err.Error()})
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// follow takes in everything: also the runs of clusters that others own, which
// people want to see here, and which keep a standby's own judgement right.
func (e *Engine) follow(ctx context.Context) error {
	if err := e.reload(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	if err := e.hosts.LoadPins(ctx, e.opt.Store); err != nil {
		return err
	}
	runs, err := state.LoadRuns(ctx, e.opt.Store)
	if err != nil {
		return fmt.Errorf("load runs: %w", err)
	}
	for _, c := range e.clusters {
		if c.book.Adopt(runs) {
			c.admit.Wake()
		}
	}
	return nil
}

// reload takes in what forbids something, whoever owns the clusters. What is there and
// cannot be read is no error: it forbids everything. // I20
func (e *Engine) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	return errors.Join(
		e.stop.Load(ctx),
		e.stop.NoteUnread(state.KindFreeze, e.hosts.LoadFreezes(ctx, e.opt.Store)),
	)
}

// keepReread reads every second what forbids something, while this instance might act
// on a cluster that others may own, too: it can take long to notice that a watch is
// dead. A failure is no news: it is tried again, and a claim ends without its store. // I23
func (e *Engine) keepReread(ctx context.Context) error {
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if e.actsAmongOthers() {
			_ = e.reload(ctx)
		}
	}
}

func (e *Engine) actsAmongOthers() bool {
	for _, c := range e.clusters {
		if c.lead.Shared() && (led{c}).MayAct() {
			return true
		}
	}
	return false
}
