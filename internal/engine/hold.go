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

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/state"
)

// NoHold is the refusal to release a Node on which neither a hold nor a quarantine stands.
const NoHold policy.Reason = "NoHold"

// holds are those that the store has, ended ones too.
type holds struct {
	mu  sync.Mutex
	all map[string]state.Hold // by key
}

// loadHolds reads the holds. What cannot be read leaves what was known, and so does
// what was stored here while they were read. // I23
func (e *Engine) loadHolds(ctx context.Context) error {
	e.holds.mu.Lock()
	before := maps.Clone(e.holds.all)
	e.holds.mu.Unlock()
	list, err := state.LoadHolds(ctx, e.opt.Store)
	if e.holds.merge(before, list, err == nil) {
		e.stirred(state.AllClusters)
	}
	return err
}

// merge takes in a list of all holds, whole or not, and says whether that changed
// anything. What was known before it was read, and is not in a whole one, is gone.
func (l *holds) merge(before map[string]state.Hold, list []state.Hold, whole bool) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range list {
		if h.Version > l.all[h.Key()].Version {
			l.all[h.Key()], changed = h, true
		}
		delete(before, h.Key())
	}
	for key, h := range before {
		if whole && l.all[key] == h {
			delete(l.all, key)
			changed = true
		}
	}
	return changed
}

func (l *holds) set(h state.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[h.Key()] = h
}

// prune forgets holds that ended before a time: no run that is kept asks for them.
func (l *holds) prune(ctx context.Context, s state.Store, before time.Time) (err error) {
	l.mu.Lock()
	list := slices.Collect(maps.Values(l.all))
	l.mu.Unlock()
	for _, h := range list {
		if end := h.Ended(); end.IsZero() || !end.Before(before) {
			continue
		}
		e := state.DeleteHold(ctx, s, h)
		switch {
		case errors.Is(e, state.ErrConflict): // there is a newer one, of another instance
			continue
		case e != nil && !errors.Is(e, state.ErrNotFound):
			err = errors.Join(err, e)
			continue
		}
		l.mu.Lock()
		if l.all[h.Key()] == h {
			delete(l.all, h.Key())
		}
		l.mu.Unlock()
	}
	return err
}

// hold is what is stored for a Node.
func (e *Engine) hold(cluster, node string) (state.Hold, bool) {
	e.holds.mu.Lock()
	defer e.holds.mu.Unlock()
	h, ok := e.holds.all[state.Hold{Cluster: cluster, Node: node}.Key()]
	return h, ok
}

// held says which person keeps a Node from being fenced, and why; "" when nobody
// does. // I23
func (e *Engine) held(cluster, node string) string {
	now := e.clock.now()
	h := e.stops.hold(cluster, node)
	if h.By == "" || !h.Active(now) {
		h, _ = e.hold(cluster, node)
	}
	if h.By == "" || h.Quarantine || !h.Active(now) {
		return ""
	}
	return "held by " + h.By + until(h.Until) + ": " + h.Reason
}

// stopped says why nothing that hurts may be done to a Node: everything is paused,
// or the Node is held. // I23
func (c *cluster) stopped(node string) string {
	if why := c.e.paused(c); why != "" {
		return why
	}
	return c.e.held(c.opt.Name, node)
}

// Hold keeps one Node from being fenced. It binds at once, whatever the store does;
// the Node need not be seen. Nothing that stands there is shortened. // I23
func (e *Engine) Hold(ctx context.Context, o Order) (Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return Outcome{}, err
	}
	now := time.Now().UTC()
	h := state.Hold{Cluster: c.opt.Name, Node: o.Node, By: o.Actor, Reason: o.Reason, At: now, Until: o.end(now)}
	h = lengthened(h, e.stops.hold(h.Cluster, h.Node))
	stored, _ := e.hold(h.Cluster, h.Node)
	h = lengthened(h, stored)
	e.stops.setHold(h)
	e.stirred(c.opt.Name)
	c.emit(o.event("holds it" + until(h.Until)))
	out := Outcome{Until: h.Until, Unseen: !c.sees(o.Node)}
	if err := e.saveWaiting(ctx, h); err != nil {
		out.Unsaved = unsaved("held", err)
		c.emit(Event{Type: EventFailed, Node: o.Node, Message: out.Unsaved})
	} else if stored, _ := e.hold(h.Cluster, h.Node); stored.Active(now) {
		out.Until = stored.Until // later than what was known here, perhaps
	}
	return out, nil
}

// lengthened is a new hold that ends no earlier than the one that stands there.
func lengthened(h, old state.Hold) state.Hold {
	if old.By != "" && old.Active(h.At) {
		h.Until = longest(h.Until, old.Until)
	}
	return h
}

// longest is the later end; zero is none.
func longest(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	return later(a, b)
}

// sees says whether a Node of that name, or something that will have it, is known.
func (c *cluster) sees(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runs {
		if r.Open() && r.Target.Node == node {
			return true
		}
	}
	return c.judged && (c.ledger.Node(node) != nil || c.ledger.MachineOf(node) != nil)
}

// saveWaiting stores a hold that binds already.
func (e *Engine) saveWaiting(ctx context.Context, h state.Hold) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	if err := e.stops.saving.lock(ctx); err != nil {
		return err
	}
	defer e.stops.saving.unlock()
	if e.stops.hold(h.Cluster, h.Node) != h { // released, or replaced, meanwhile
		return nil
	}
	err := e.changeHold(ctx, h.Cluster, h.Node, func(old state.Hold) (state.Hold, bool) {
		next := lengthened(h, old)
		next.ReleasedAt = old.ReleasedAt // the runs before it count no more
		return next, true
	})
	if err == nil {
		e.stops.dropHold(h)
	}
	return err
}

// changeHold stores what f makes of a Node's hold, whatever another instance has
// made of it meanwhile, and makes that what the gates ask. f says whether there is
// anything to store.
func (e *Engine) changeHold(ctx context.Context, cluster, node string, f func(old state.Hold) (state.Hold, bool)) error {
	const conflicts = 3
	for again := 0; ; again++ {
		old, _ := e.hold(cluster, node)
		next, changed := f(old)
		if !changed {
			return nil
		}
		next.Cluster, next.Node, next.Version = cluster, node, old.Version
		saved, err := state.SaveHold(ctx, e.opt.Store, next)
		if err == nil {
			e.holds.set(saved)
			e.stirred(cluster)
			return nil
		}
		if again == conflicts || !errors.Is(err, state.ErrConflict) && !errors.Is(err, state.ErrExists) {
			return err
		}
		if err := e.loadHolds(ctx); err != nil {
			return err
		}
	}
}

// ReleaseHold ends the hold or the quarantine of a Node.
func (e *Engine) ReleaseHold(ctx context.Context, o Order) (Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return Outcome{}, err
	}
	if err := e.stops.begin(ctx); err != nil {
		return Outcome{}, fmt.Errorf("release it; it stays held: %w", err)
	}
	defer e.stops.saving.unlock()
	now, waiting, released := time.Now().UTC(), e.stops.hold(c.opt.Name, o.Node), false
	err = e.changeHold(ctx, c.opt.Name, o.Node, func(h state.Hold) (state.Hold, bool) {
		released = h.By != "" && h.Active(now)
		h.ReleasedBy, h.ReleasedReason, h.ReleasedAt = o.Actor, o.Reason, now
		return h, released
	})
	if err != nil {
		return Outcome{}, fmt.Errorf("save that it is released; it stays held: %w", err)
	}
	if waiting.By == "" && !released {
		return Outcome{}, &Refusal{Reason: NoHold, Message: "nobody holds " + o.Node + ", and it is in no quarantine"}
	}
	e.stops.dropHold(waiting)
	e.stirred(c.opt.Name)
	c.emit(o.event("releases it"))
	return Outcome{}, nil
}

// Holds lists the holds and quarantines that stand in a cluster, by Node.
func (e *Engine) Holds(cluster string) []state.Hold {
	now := e.clock.now()
	found := map[string]state.Hold{}
	collect := func(from map[string]state.Hold) {
		for _, h := range from {
			if h.Cluster == cluster && h.Active(now) {
				found[h.Node] = h
			}
		}
	}
	e.holds.mu.Lock()
	collect(e.holds.all)
	e.holds.mu.Unlock()
	e.stops.mu.Lock()
	collect(e.stops.holds)
	e.stops.mu.Unlock()
	return slices.SortedFunc(maps.Values(found), func(a, b state.Hold) int { return strings.Compare(a.Node, b.Node) })
}

// keepHolds saves the holds that wait for the store, and tells of those that are
// over since the last time.
func (e *Engine) keepHolds(ctx context.Context, last, now time.Time) {
	over := map[string]state.Hold{}
	e.stops.mu.Lock()
	waiting := slices.Collect(maps.Values(e.stops.holds))
	e.stops.mu.Unlock()
	for _, h := range waiting {
		if !h.Active(now) {
			over[h.Key()] = h
			e.stops.dropHold(h)
			continue
		}
		_ = e.saveWaiting(ctx, h) // a failure is no news: it is tried again
	}
	e.holds.mu.Lock()
	for key, h := range e.holds.all {
		if h.ReleasedBy == "" && last.Before(h.Until) && !now.Before(h.Until) {
			over[key] = h
		}
	}
	e.holds.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(over)) {
		h := over[key]
		e.opt.Events.Emit(Event{Type: EventOrder, Cluster: h.Cluster, Node: h.Node, Message: "the hold by " + h.By + " is over"})
		e.stirred(h.Cluster)
	}
}
