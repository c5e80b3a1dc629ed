package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

const maxUnread = 500 // bytes of what is said of records that cannot be read

// corruptRecords are the records of pauses, holds and freezes that are there and cannot be
// read: what they forbid is not known, so that everything is paused. The hosts that are
// off come back all the same. // I20, I23
type corruptRecords struct {
	mu  sync.Mutex
	bad map[state.Kind]error
}

func newCorruptRecords() *corruptRecords { return &corruptRecords{bad: map[state.Kind]error{}} }

// note takes in how the records of a kind were read, and says whether that changed
// anything. What could not be asked for changes nothing.
func (d *corruptRecords) note(kind state.Kind, err error) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, had := d.bad[kind]
	switch {
	case err == nil:
		delete(d.bad, kind)
		return had
	case errors.Is(err, state.ErrUnreadable):
		d.bad[kind] = err
		return !had || old.Error() != err.Error()
	}
	return false
}

// why is why everything is paused for such records; "" when it is not.
func (d *corruptRecords) why() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.bad) == 0 {
		return ""
	}
	var said []string
	for _, kind := range slices.Sorted(maps.Keys(d.bad)) {
		said = append(said, strings.ReplaceAll(d.bad[kind].Error(), "\n", "; "))
	}
	return "everything is paused: what forbids something cannot be read: " + bmc.Printable(strings.Join(said, "; "), maxUnread)
}

// noteUnread takes in how the records of a kind were read, and gives the error if they
// could not be asked for at all. Once all can be read, the quiet period begins. // I16
func (e *Engine) noteUnread(kind state.Kind, err error) error {
	if e.corrupt.note(kind, err) {
		ev := event.Event{Type: event.Failed, Message: e.corrupt.why()}
		if ev.Message == "" {
			ev = event.Event{Type: event.Internal, Message: "what forbids something can be read again; the quiet period begins"}
		}
		e.beQuiet(state.AllClusters, time.Now())
		e.opt.Events.Emit(ev)
		e.stirred(state.AllClusters)
	}
	if err != nil && !errors.Is(err, state.ErrUnreadable) {
		return err
	}
	return nil
}

// firstStops loads at a start what forbids something, and gives the clusters' records.
func (e *Engine) firstStops(ctx context.Context) ([]state.Cluster, error) {
	records, err := state.LoadClusters(ctx, e.opt.Store)
	if err := e.noteUnread(state.KindCluster, err); err != nil {
		return nil, fmt.Errorf("load the state of the clusters: %w", err)
	}
	e.global = recordOf(records, state.AllClusters)
	if err := e.noteUnread(state.KindHold, e.loadHolds(ctx)); err != nil {
		return nil, fmt.Errorf("load holds: %w", err)
	}
	return records, e.noteUnread(state.KindFreeze, e.freezes.load(ctx, e.opt.Store))
}

// recordOf is a cluster's record; only its name when none was saved.
func recordOf(records []state.Cluster, name string) state.Cluster {
	for _, r := range records {
		if r.Name == name {
			return r
		}
	}
	return state.Cluster{Name: name}
}
