package stop

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
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
func (s *Stop) Hold(ctx context.Context, o order.Order, seen func(name string) bool) (order.Outcome, error) {
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
func (s *Stop) Release(ctx context.Context, o order.Order) (order.Outcome, error) {
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
		at = later(at, s.holds.releasedAt(key{cluster, name}))
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
