package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

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
	if h.Version > l.all[h.Key()].Version { // else another instance's came after it
		l.all[h.Key()] = h
	}
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

// holdOf names the hold of a Node by people.
func holdOf(cluster, node string) state.Hold { return state.Hold{Cluster: cluster, Node: node} }

// standing says whether there is such a hold, and it binds.
func standing(h state.Hold, now time.Time) bool { return h.By != "" && h.Active(now) }

// stands is the same now. Of most Nodes there is none, and no clock is asked.
func (e *Engine) stands(h state.Hold) bool {
	return h.By != "" && h.Active(e.stopsEndBy(h.Cluster))
}

// hold is what is stored under the key of one; the zero value when nothing is.
func (e *Engine) hold(of state.Hold) state.Hold {
	e.holds.mu.Lock()
	defer e.holds.mu.Unlock()
	return e.holds.all[of.Key()]
}

// held says which person keeps a Node from being fenced, and why; "" when nobody
// does. // I23
func (e *Engine) held(cluster, node string) string {
	h := e.stops.hold(cluster, node)
	if !e.stands(h) {
		h = e.hold(holdOf(cluster, node))
	}
	if !e.stands(h) {
		return ""
	}
	return "held by " + h.By + until(h.Until) + ": " + h.Reason + e.overdue(h.Until)
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
func (e *Engine) Hold(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	now := time.Now().UTC()
	h := state.Hold{Cluster: c.opt.Name, Node: o.Node, By: o.Actor, Reason: o.Reason, At: now, Until: o.Ends(e.stopsBeginBy(c.opt.Name))}
	length := until(h.Until)
	end := e.stopsEndBy(h.Cluster)
	h = lengthened(h, e.stops.hold(h.Cluster, h.Node), end)
	h = lengthened(h, e.hold(h), end)
	e.stops.setHold(h)
	e.stirred(c.opt.Name)
	c.emit(o.Event("holds it" + length))
	out := order.Outcome{Until: h.Until, Unseen: !c.sees(o.Node)}
	if err := e.saveWaiting(ctx, h); err != nil {
		out.Unsaved = unsaved("held", err)
		c.emit(event.Event{Type: event.Failed, Node: o.Node, Message: out.Unsaved})
	} else if stored := e.hold(h); standing(stored, end) {
		h = stored // longer than what was known here, perhaps
	}
	out.Until, out.Earlier = h.Until, earlier(o, h.By, h.Reason)
	return out, nil
}

// lengthened is a new hold, or the one that stands there if that ends no earlier: then
// it goes on under the name and the reason of who gave it.
func lengthened(h, old state.Hold, now time.Time) state.Hold {
	if standing(old, now) && noEarlier(old.Until, h.Until) {
		h.By, h.Reason, h.At, h.Until = old.By, old.Reason, old.At, old.Until
	}
	return h
}

// noEarlier says whether a stop ends no earlier than another; zero is never.
func noEarlier(end, other time.Time) bool {
	return end.IsZero() || !other.IsZero() && !end.Before(other)
}

// earlier names whose stop goes on in the place of a new one that is no longer; "" when
// that of the order does.
func earlier(o order.Order, by, code string) string {
	if by == o.Actor && code == o.Reason {
		return ""
	}
	return by + ": " + code
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
	err := e.changeHold(ctx, h, func(old state.Hold) (state.Hold, bool) {
		next := lengthened(h, old, e.stopsEndBy(h.Cluster))
		next.ReleasedAt = old.ReleasedAt // the runs before it count no more
		return next, true
	})
	if err == nil {
		e.stops.dropHold(h)
	}
	return err
}

// changeHold stores what f makes of a Node's hold, or of its quarantine, whatever
// another instance has made of it meanwhile, and makes that what the gates ask. f says
// whether there is anything to store.
func (e *Engine) changeHold(ctx context.Context, of state.Hold, f func(old state.Hold) (state.Hold, bool)) error {
	const conflicts = 3
	for again := 0; ; again++ {
		old := e.hold(of)
		next, changed := f(old)
		if !changed {
			return nil
		}
		next.Cluster, next.Node, next.Quarantine, next.Version = of.Cluster, of.Node, of.Quarantine, old.Version
		saved, err := state.SaveHold(ctx, e.opt.Store, next)
		if err == nil {
			e.holds.set(saved)
			e.stirred(of.Cluster)
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

// ReleaseHold ends the hold of a Node by people or, where none stands, its quarantine:
// one of them, so that who ends his own hold does not let the host be fenced again.
func (e *Engine) ReleaseHold(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	if err := e.stops.begin(ctx); err != nil {
		return order.Outcome{}, fmt.Errorf("release it; it stays held: %w", err)
	}
	defer e.stops.saving.unlock()
	waiting := e.stops.hold(c.opt.Name, o.Node)
	out, released, err := order.Outcome{}, false, error(nil)
	if released, err = e.release(ctx, o, holdOf(c.opt.Name, o.Node)); err == nil && !released && waiting.By == "" {
		out.Quarantine = true
		released, err = e.release(ctx, o, quarantineOf(c.opt.Name, o.Node))
	}
	switch {
	case err != nil:
		return order.Outcome{}, fmt.Errorf("save that it is released; it stays held: %w", err)
	case waiting.By == "" && !released:
		return order.Outcome{}, &reason.Refusal{Reason: reason.NoHold, Message: "nobody holds " + o.Node + ", and it is in no quarantine"}
	}
	e.stops.dropHold(waiting)
	e.stirred(c.opt.Name)
	if out.Quarantine {
		c.emit(o.Event("releases it from the quarantine"))
		return out, nil
	}
	c.emit(o.Event("releases it"))
	if why, end := e.quarantine(c.opt.Name, o.Node); why != "" {
		out.Still = "in quarantine" + until(end) + ": " + why
	}
	return out, nil
}

// release stores that a person ended a hold, and says whether it stood.
func (e *Engine) release(ctx context.Context, o order.Order, of state.Hold) (released bool, err error) {
	err = e.changeHold(ctx, of, func(h state.Hold) (state.Hold, bool) {
		released = e.stands(h)
		h.ReleasedBy, h.ReleasedReason, h.ReleasedAt = o.Actor, o.Reason, time.Now().UTC()
		return h, released
	})
	return released, err
}

// Holds lists the holds and quarantines that stand in a cluster, by Node; a quarantine
// comes after the hold of the same Node.
func (e *Engine) Holds(cluster string) []state.Hold {
	now := e.stopsEndBy(cluster)
	found := map[string]state.Hold{}
	collect := func(from map[string]state.Hold) {
		for _, h := range from {
			if h.Cluster == cluster && standing(h, now) {
				found[h.Key()] = h
			}
		}
	}
	e.holds.mu.Lock()
	collect(e.holds.all)
	e.holds.mu.Unlock()
	e.stops.mu.Lock()
	collect(e.stops.holds)
	e.stops.mu.Unlock()
	return slices.SortedFunc(maps.Values(found), func(a, b state.Hold) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Key(), b.Key()))
	})
}

// keepHolds saves the holds that wait for the store, and ends those that are over. A
// failure is no news: it is tried again. // I23
func (e *Engine) keepHolds(ctx context.Context) {
	e.stops.mu.Lock()
	waiting := slices.Collect(maps.Values(e.stops.holds))
	e.stops.mu.Unlock()
	for _, h := range waiting {
		if h.Active(e.stopsEndBy(h.Cluster)) {
			_ = e.saveWaiting(ctx, h)
			continue
		}
		e.stops.dropHold(h)
		e.tellOver(h)
	}
	e.holds.mu.Lock()
	stored := slices.SortedFunc(maps.Values(e.holds.all), func(a, b state.Hold) int { return strings.Compare(a.Key(), b.Key()) })
	e.holds.mu.Unlock()
	for _, h := range stored {
		if over(h, e.stopsEndBy(h.Cluster)) {
			e.endHold(ctx, h)
		}
	}
}

// endHold notes in the store that a hold is over, so that no clock which goes back, or is
// not known to be right, brings it back. The record stays: it may say that the runs before
// it count no more.
func (e *Engine) endHold(ctx context.Context, h state.Hold) {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	ended := false
	err := e.changeHold(ctx, h, func(old state.Hold) (state.Hold, bool) {
		ended = over(old, e.stopsEndBy(h.Cluster)) // unless another instance was faster
		old.By = ""
		return old, ended
	})
	if err == nil && ended {
		e.tellOver(h)
	}
}

// over says whether a hold has come to its end by itself.
func over(h state.Hold, now time.Time) bool {
	return h.By != "" && h.ReleasedBy == "" && !h.Active(now)
}

func (e *Engine) tellOver(h state.Hold) {
	e.opt.Events.Emit(event.Event{Type: event.Ordered, Cluster: h.Cluster, Node: h.Node, Message: "the hold by " + h.By + " is over"})
	e.stirred(h.Cluster)
}
