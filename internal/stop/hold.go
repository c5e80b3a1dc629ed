package stop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
)

// Held returns which person keeps a target from being fenced, and why. It is "" if nobody does. A
// target has the name of its Node and the "namespace/name" of its Machine; a hold of either
// counts. // I23
func (s *Stop) Held(cluster string, names ...string) string {
	for _, name := range names {
		k := key{cluster, name}
		for _, h := range []stop{s.unsaved.get(k), holdOf(s.holdRecord(k, false))} {
			if h.by != "" && h.active(s.EndBy(cluster)) { // most Nodes have none, and then no clock is asked
				return "held by " + h.by + untilText(h.until) + ": " + h.reason + s.clocks.overdueText(h.until)
			}
		}
	}
	return ""
}

// MaxUnseenHolds is how many Nodes and Machines of one cluster that do not exist can have a hold. Those that exist can always
// be held.
const MaxUnseenHolds = 1000

// Hold keeps one Node or Machine from being fenced. It need not exist: seen says of which names fenced knows that
// they do. // I23
func (s *Stop) Hold(ctx context.Context, o wire.Order, seen func(name string) bool) (order.Outcome, error) {
	k := key{o.Cluster, o.Of()}
	if !seen(k.node) && !s.hasRoom(ctx, k, seen) {
		return order.Outcome{}, &reason.Refusal{Reason: reason.TooManyHolds, Message: fmt.Sprintf(
			"%d Nodes and Machines that fenced does not see are held in cluster %s: release those that you no longer need (fencectl status lists them), then hold %s again",
			MaxUnseenHolds, o.Cluster, k.node)}
	}
	return s.begin(ctx, k, o, "holds it", "held"), nil
}

// hasRoom says whether a name that is not seen may have a hold more. If there are too many records of such names, those of holds
// that have ended go first: no run asks for them.
func (s *Stop) hasRoom(ctx context.Context, k key, seen func(name string) bool) bool {
	unseen := map[string]bool{}
	for other := range s.unsaved.all() {
		if other.cluster == k.cluster && other.node != "" && !seen(other.node) {
			unseen[other.node] = true
		}
	}
	records := slices.DeleteFunc(s.holds.All(), func(h state.Hold) bool {
		return h.Cluster != k.cluster || h.Quarantine || seen(h.Node)
	})
	for _, h := range records {
		unseen[h.Node] = true
	}
	if unseen[k.node] || len(unseen) < MaxUnseenHolds {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, saveTime) // for all of them: a person waits
	defer cancel()
	for _, h := range records {
		if !holdOf(h).active(s.EndBy(k.cluster)) && s.holds.Delete(ctx, s.opt.Store, h) == nil && s.unsaved.get(key{h.Cluster, h.Node}).by == "" {
			delete(unseen, h.Node)
		}
	}
	return len(unseen) < MaxUnseenHolds
}

// Release ends the hold of a Node or Machine by people. If there is none, it ends the quarantine.
// It never ends both, so that a person who ends a hold does not also lift the quarantine.
func (s *Stop) Release(ctx context.Context, o wire.Order) (order.Outcome, error) {
	if err := s.lock(ctx); err != nil {
		return order.Outcome{}, fmt.Errorf("release it; it stays held: %w", err)
	}
	defer s.saving.Release(1)
	k, out := key{o.Cluster, o.Of()}, order.Outcome{}
	anybodys := func(stop) bool { return true }
	released, err := s.release(ctx, o, k, false, anybodys)
	if err == nil && !released {
		out.Quarantine = true
		released, err = s.release(ctx, o, k, true, anybodys)
	}
	switch {
	case err != nil:
		return order.Outcome{}, fmt.Errorf("save the release; it stays held: %w", err)
	case !released:
		return order.Outcome{}, &reason.Refusal{Reason: reason.NoHold, Message: "nobody holds " + o.Of() + ", and it is in no quarantine"}
	}
	s.clusters.wake(o.Cluster)
	if out.Quarantine {
		s.opt.Emit(o.Event("releases it from the quarantine"))
		return out, nil
	}
	s.opt.Emit(o.Event("releases it"))
	if why, end := s.Quarantined(o.Cluster, o.Of()); why != "" {
		out.Still = "in quarantine" + untilText(end) + ": " + why
	}
	return out, nil
}

// ReleasedAt returns when a person last allowed a target to be fenced again. It is zero if
// nobody did.
func (s *Stop) ReleasedAt(cluster string, names ...string) (at time.Time) {
	now := time.Now()
	for _, name := range names {
		k := key{cluster, name}
		for _, quarantine := range []bool{false, true} {
			if released := s.holdRecord(k, quarantine).ReleasedAt; !released.After(now) { // else a clock that was ahead wrote it // I15
				at = times.Later(at, released)
			}
		}
	}
	return at
}

// Holds lists the active holds and quarantines of a cluster in the order of the Nodes. A
// quarantine comes after the hold of the same Node.
func (s *Stop) Holds(cluster string) (list []state.Hold) {
	now := s.EndBy(cluster)
	for k, v := range s.unsaved.all() {
		if k.cluster == cluster && k.node != "" && v.active(now) {
			list = append(list, state.Hold{Cluster: k.cluster, Node: k.node, By: v.by, Reason: v.reason, At: v.at, Until: v.until, Selector: v.selector})
		}
	}
	for _, h := range s.holds.All() {
		if h.Cluster == cluster && holdOf(h).active(now) && !slices.ContainsFunc(list, func(unsaved state.Hold) bool { return unsaved.Key() == h.Key() }) {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b state.Hold) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Key(), b.Key()))
	})
	return list
}

// Prune deletes the holds that ended before a time: no run that is kept asks for them.
func (s *Stop) Prune(ctx context.Context, store state.Store, before time.Time) (err error) {
	for _, h := range s.holds.All() {
		if end := h.Ended(); end.IsZero() || !end.Before(before) {
			continue
		}
		if e := s.holds.Delete(ctx, store, h); e != nil && !errors.Is(e, state.ErrConflict) { // on a conflict there is a newer one
			err = errors.Join(err, e)
		}
	}
	return err
}

const (
	quarantineFor = 24 * time.Hour
	quarantinedBy = "fenced"
)

// Quarantine keeps the daemon from fencing a host that was fenced too often in a day: power
// cycles do not help it. name is that of its Node, or the "namespace/name" of its Machine. If a person releases the host, a new day begins. // I15
func (s *Stop) Quarantine(ctx context.Context, cluster, name, why string, now time.Time) {
	h := state.Hold{
		Cluster: cluster, Node: name, Quarantine: true,
		By: quarantinedBy, At: now.UTC(), Until: now.Add(quarantineFor).UTC(), Reason: "fenced again and again: " + why,
	}
	about := key{cluster, name}
	stored := false
	err := s.changeHold(ctx, about, true, func(old *state.Hold) bool {
		stored = !holdOf(*old).active(now)
		h.ReleasedAt = old.ReleasedAt // of an earlier one: the runs before it do not count
		*old = h
		return stored
	})
	switch {
	case err != nil: // the gate of the daily limit stays closed without it
		s.opt.Emit(about.event(event.Event{Type: event.Failed, Message: "save the quarantine: " + err.Error()}))
	case stored:
		s.opt.Emit(about.event(event.Event{Type: event.Refused, Reason: reason.Quarantined,
			Message: fmt.Sprintf("quarantined until %s, or until a person releases it: %s", h.Until.Format(time.RFC3339), h.Reason)}))
	}
}

// Quarantined returns why a target's host is in quarantine, and until when. why is "" if it is
// not. // I15
func (s *Stop) Quarantined(cluster string, names ...string) (why string, until time.Time) {
	for _, name := range names {
		if h := s.holdRecord(key{cluster, name}, true); h.By != "" && holdOf(h).active(s.EndBy(cluster)) {
			return h.Reason, h.Until
		}
	}
	return "", time.Time{}
}

// holdRecord returns the record of a Node's hold or quarantine. The zero value means that there is
// none.
func (s *Stop) holdRecord(k key, quarantine bool) state.Hold {
	h, _ := s.holds.Get(state.Hold{Cluster: k.cluster, Node: k.node, Quarantine: quarantine}.Key())
	return h
}

// changeHold stores what change makes of a Node's hold or quarantine. change returns whether to
// store it.
func (s *Stop) changeHold(ctx context.Context, k key, quarantine bool, change func(*state.Hold) bool) error {
	id := state.Hold{Cluster: k.cluster, Node: k.node, Quarantine: quarantine}.Key()
	_, err := s.holds.Update(ctx, s.opt.Store, id, func(h state.Hold, _ bool) (state.Hold, bool) {
		h.Cluster, h.Node, h.Quarantine = k.cluster, k.node, quarantine
		write := change(&h)
		return h, write
	})
	return err
}

// release ends a hold, saved or not, or a quarantine by order of a person, if that order means it. It reports whether there
// was one. The caller holds s.saving.
func (s *Stop) release(ctx context.Context, o wire.Order, k key, quarantine bool, means func(stop) bool) (released bool, err error) {
	var unsaved stop
	if !quarantine {
		unsaved = s.unsaved.get(k)
	}
	if unsaved.by != "" && !means(unsaved) {
		return false, nil // it binds in place of the stored one
	}
	err = s.changeHold(ctx, k, quarantine, func(h *state.Hold) bool {
		v := holdOf(*h)
		released = v.active(s.EndBy(k.cluster)) && means(v)
		h.ReleasedBy, h.ReleasedReason, h.ReleasedAt = o.Actor, o.Reason, time.Now().UTC()
		return released
	})
	if err != nil {
		return false, err
	}
	s.unsaved.drop(k, unsaved)
	return released || unsaved.by != "", nil
}

// endHolds stores which holds are over, so that none becomes active again when a clock is set
// back, or is not known to be right. The record stays: it may hold the time of a release.
func (s *Stop) endHolds(ctx context.Context) {
	over := func(h state.Hold) bool {
		v := holdOf(h)
		return v.by != "" && !v.active(s.EndBy(h.Cluster))
	}
	for _, h := range s.holds.All() {
		if !over(h) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, saveTime)
		k, stored := key{h.Cluster, h.Node}, false
		err := s.changeHold(ctx, k, h.Quarantine, func(now *state.Hold) bool {
			stored = over(*now) // false if another instance was faster
			now.By = ""
			return stored
		})
		cancel()
		if err == nil && stored {
			s.opt.Emit(k.holdOver(h.By))
			s.clusters.wake(k.cluster)
		}
	}
}
