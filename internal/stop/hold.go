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
		for _, h := range []stop{s.unsaved.get(k), s.holds.hold(k)} {
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
	records := s.holds.unseen(k.cluster, seen)
	for _, h := range records {
		unseen[h.Node] = true
	}
	if unseen[k.node] || len(unseen) < MaxUnseenHolds {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, saveTime) // for all of them: a person waits
	defer cancel()
	for _, h := range records {
		if !holdOf(h).active(s.EndBy(k.cluster)) && s.holds.table.Delete(ctx, s.holds.store, h) == nil && s.unsaved.get(key{h.Cluster, h.Node}).by == "" {
			delete(unseen, h.Node)
		}
	}
	return len(unseen) < MaxUnseenHolds
}

// Release ends the hold of a Node or Machine by people. If there is none, it ends the quarantine.
// It never ends both, so that a person who ends a hold does not also lift the quarantine.
func (s *Stop) Release(ctx context.Context, o wire.Order) (order.Outcome, error) {
	if err := s.lockForOrder(ctx); err != nil {
		return order.Outcome{}, fmt.Errorf("release it; it stays held: %w", err)
	}
	defer s.saving.Release(1)
	k, out := key{o.Cluster, o.Of()}, order.Outcome{}
	unsaved := s.unsaved.get(k)
	released, err := s.holds.release(ctx, o, k, false)
	if err == nil && !released && unsaved.by == "" {
		out.Quarantine = true
		released, err = s.holds.release(ctx, o, k, true)
	}
	switch {
	case err != nil:
		return order.Outcome{}, fmt.Errorf("save that it is released; it stays held: %w", err)
	case unsaved.by == "" && !released:
		return order.Outcome{}, &reason.Refusal{Reason: reason.NoHold, Message: "nobody holds " + o.Of() + ", and it is in no quarantine"}
	}
	s.unsaved.drop(k, unsaved)
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
	for _, name := range names {
		at = times.Later(at, s.holds.releasedAt(key{cluster, name}))
	}
	return at
}

// Holds lists the active holds and quarantines of a cluster in the order of the Nodes. A
// quarantine comes after the hold of the same Node.
func (s *Stop) Holds(cluster string) (list []state.Hold) {
	now := s.EndBy(cluster)
	for k, v := range s.unsaved.all() {
		if k.cluster == cluster && k.node != "" && v.active(now) {
			list = append(list, state.Hold{Cluster: k.cluster, Node: k.node, By: v.by, Reason: v.reason, At: v.at, Until: v.until})
		}
	}
	for _, h := range s.holds.active(cluster, now) {
		if !slices.ContainsFunc(list, func(unsaved state.Hold) bool { return unsaved.Key() == h.Key() }) {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b state.Hold) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Key(), b.Key()))
	})
	return list
}

func (s *Stop) emitHoldOver(k key, by string) {
	s.opt.Emit(k.event(event.Event{Type: event.Ordered, Message: "the hold by " + by + " is over"}))
	s.clusters.wake(k.cluster)
}

// Prune deletes the holds that ended before a time: no run that is kept asks for them.
func (s *Stop) Prune(ctx context.Context, store state.Store, before time.Time) error {
	return s.holds.prune(ctx, store, before)
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
	stored, err := s.holds.quarantine(ctx, h, now)
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
		if h := s.holds.record(key{cluster, name}, true); h.By != "" && holdOf(h).active(s.EndBy(cluster)) {
			return h.Reason, h.Until
		}
	}
	return "", time.Time{}
}

// holdRecords are the stored holds and quarantines of Nodes. A Node can have one of each.
type holdRecords struct {
	store  state.Store
	clocks *clocks
	table  *state.Table[state.Hold]
}

func (r *holdRecords) load(ctx context.Context) error { return r.table.Load(ctx, r.store) }

// recordKey names the record of a Node's hold or quarantine.
func recordKey(k key, quarantine bool) string {
	return state.Hold{Cluster: k.cluster, Node: k.node, Quarantine: quarantine}.Key()
}

// record returns the record of a Node's hold or quarantine. The zero value means that there is
// none.
func (r *holdRecords) record(k key, quarantine bool) state.Hold {
	h, _ := r.table.Get(recordKey(k, quarantine))
	return h
}

// hold returns the stored hold of a Node by a person.
func (r *holdRecords) hold(k key) stop { return holdOf(r.record(k, false)) }

// change stores what change makes of a Node's hold or quarantine. change returns whether to
// store it.
func (r *holdRecords) change(ctx context.Context, k key, quarantine bool, change func(*state.Hold) bool) error {
	_, err := r.table.Update(ctx, r.store, recordKey(k, quarantine), func(h state.Hold, _ bool) (state.Hold, bool) {
		h.Cluster, h.Node, h.Quarantine = k.cluster, k.node, quarantine
		write := change(&h)
		return h, write
	})
	return err
}

// save stores a hold, unless a longer one is stored. The time of an earlier release stays in
// the record: runs before it do not count.
func (r *holdRecords) save(ctx context.Context, k key, v stop) error {
	return r.change(ctx, k, false, func(h *state.Hold) bool {
		v := v.orLonger(holdOf(*h), r.clocks.endBy(k.cluster))
		*h = state.Hold{Cluster: k.cluster, Node: k.node, By: v.by, Reason: v.reason, At: v.at, Until: v.until, ReleasedAt: h.ReleasedAt}
		return true
	})
}

// release stores that a person ended a hold or a quarantine. It reports whether that was
// active.
func (r *holdRecords) release(ctx context.Context, o wire.Order, k key, quarantine bool) (released bool, err error) {
	err = r.change(ctx, k, quarantine, func(h *state.Hold) bool {
		released = holdOf(*h).active(r.clocks.endBy(k.cluster))
		h.ReleasedBy, h.ReleasedReason, h.ReleasedAt = o.Actor, o.Reason, time.Now().UTC()
		return released
	})
	return released, err
}

// quarantine stores a quarantine, unless one is active at that time. It reports whether it
// stored one.
func (r *holdRecords) quarantine(ctx context.Context, h state.Hold, now time.Time) (stored bool, err error) {
	err = r.change(ctx, key{h.Cluster, h.Node}, true, func(old *state.Hold) bool {
		stored = !holdOf(*old).active(now)
		*old = h
		return stored
	})
	return stored, err
}

// releasedAt returns when a person last released a Node's hold or quarantine. It is zero if
// nobody did.
func (r *holdRecords) releasedAt(k key) time.Time {
	return times.Later(r.record(k, false).ReleasedAt, r.record(k, true).ReleasedAt)
}

// active returns the stored holds and quarantines of a cluster that are active at a time.
func (r *holdRecords) active(cluster string, now time.Time) (list []state.Hold) {
	for _, h := range r.table.All() {
		if h.Cluster == cluster && holdOf(h).active(now) {
			list = append(list, h)
		}
	}
	return list
}

// unseen returns the holds of a cluster by people, also those that have ended, of names that are not seen.
func (r *holdRecords) unseen(cluster string, seen func(name string) bool) (list []state.Hold) {
	for _, h := range r.table.All() {
		if h.Cluster == cluster && !h.Quarantine && !seen(h.Node) {
			list = append(list, h)
		}
	}
	return list
}

// endOver stores which holds are over, so that none becomes active again when a clock is set
// back, or is not known to be right. It calls ended for each. The record stays: it may hold the
// time of a release.
func (r *holdRecords) endOver(ctx context.Context, ended func(k key, by string)) {
	over := func(h state.Hold) bool {
		v := holdOf(h)
		return v.by != "" && !v.active(r.clocks.endBy(h.Cluster))
	}
	for _, h := range r.table.All() {
		if !over(h) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, saveTime)
		k, stored := key{h.Cluster, h.Node}, false
		err := r.change(ctx, k, h.Quarantine, func(now *state.Hold) bool {
			stored = over(*now) // false if another instance was faster
			now.By = ""
			return stored
		})
		cancel()
		if err == nil && stored {
			ended(k, h.By)
		}
	}
}

// prune deletes the holds that ended before a time: no run that is kept asks for them.
func (r *holdRecords) prune(ctx context.Context, store state.Store, before time.Time) (err error) {
	for _, h := range r.table.All() {
		if end := h.Ended(); end.IsZero() || !end.Before(before) {
			continue
		}
		if e := r.table.Delete(ctx, store, h); e != nil && !errors.Is(e, state.ErrConflict) { // on a conflict there is a newer one
			err = errors.Join(err, e)
		}
	}
	return err
}
