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
)

func compareKeys(a, b key) int {
	return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.node, b.node))
}

// recordKey names the record of a Node's hold, or of the quarantine beside it.
func recordKey(k key, quarantine bool) string {
	return state.Hold{Cluster: k.cluster, Node: k.node, Quarantine: quarantine}.Key()
}

// hold is the record of a Node's hold, or of its quarantine; the zero value when there is
// none.
func (s *Stop) hold(k key, quarantine bool) state.Hold {
	h, _ := s.holds.Get(recordKey(k, quarantine))
	return h
}

// changeHold stores what change makes of a Node's hold, or of its quarantine. change says
// whether there is anything to store.
func (s *Stop) changeHold(ctx context.Context, k key, quarantine bool, change func(*state.Hold) bool) error {
	_, err := s.holds.Update(ctx, s.opt.Store, recordKey(k, quarantine), func(h state.Hold, _ bool) (state.Hold, bool) {
		h.Cluster, h.Node, h.Quarantine = k.cluster, k.node, quarantine
		write := change(&h)
		return h, write
	})
	return err
}

// Held says which person keeps a Node from being fenced, and why; "" when nobody
// does. // I23
func (s *Stop) Held(cluster, node string) string {
	k := key{cluster, node}
	for _, h := range []stop{s.getWaiting(k), s.stored(k)} {
		if h.by != "" && h.active(s.EndBy(cluster)) { // of most Nodes there is none, and no clock is asked
			return "held by " + h.by + untilText(h.until) + ": " + h.reason + s.overdue(h.until)
		}
	}
	return ""
}

// Hold keeps one Node from being fenced; the Node need not be seen. // I23
func (s *Stop) Hold(ctx context.Context, o order.Order) order.Outcome {
	return s.begin(ctx, key{o.Cluster, o.Node}, o, "holds it", "held")
}

// saveHold stores a hold, unless a longer one is there. The runs before an earlier release
// still count no more.
func (s *Stop) saveHold(ctx context.Context, k key, v stop) error {
	return s.changeHold(ctx, k, false, func(h *state.Hold) bool {
		v := v.orLonger(holdOf(*h), s.EndBy(k.cluster))
		*h = state.Hold{Cluster: k.cluster, Node: k.node, By: v.by, Reason: v.reason, At: v.at, Until: v.until, ReleasedAt: h.ReleasedAt}
		return true
	})
}

// Release ends the hold of a Node by people or, where there is none, its quarantine: one
// of them, so that who ends his own hold does not let the host be fenced again.
func (s *Stop) Release(ctx context.Context, o order.Order) (order.Outcome, error) {
	if err := s.lockForOrder(ctx); err != nil {
		return order.Outcome{}, fmt.Errorf("release it; it stays held: %w", err)
	}
	defer s.saving.Release(1)
	k, out := key{o.Cluster, o.Node}, order.Outcome{}
	waiting := s.getWaiting(k)
	released, err := s.release(ctx, o, k, false)
	if err == nil && !released && waiting.by == "" {
		out.Quarantine = true
		released, err = s.release(ctx, o, k, true)
	}
	switch {
	case err != nil:
		return order.Outcome{}, fmt.Errorf("save that it is released; it stays held: %w", err)
	case waiting.by == "" && !released:
		return order.Outcome{}, &reason.Refusal{Reason: reason.NoHold, Message: "nobody holds " + o.Node + ", and it is in no quarantine"}
	}
	s.dropWaiting(k, waiting)
	s.wake(o.Cluster)
	if out.Quarantine {
		s.opt.Emit(o.Event("releases it from the quarantine"))
		return out, nil
	}
	s.opt.Emit(o.Event("releases it"))
	if why, end := s.Quarantined(o.Cluster, o.Node); why != "" {
		out.Still = "in quarantine" + untilText(end) + ": " + why
	}
	return out, nil
}

// release stores that a person ended a hold, and says whether it was active.
func (s *Stop) release(ctx context.Context, o order.Order, k key, quarantine bool) (released bool, err error) {
	err = s.changeHold(ctx, k, quarantine, func(h *state.Hold) bool {
		released = holdOf(*h).active(s.EndBy(k.cluster))
		h.ReleasedBy, h.ReleasedReason, h.ReleasedAt = o.Actor, o.Reason, time.Now().UTC()
		return released
	})
	return released, err
}

// ReleasedAt is when a person last let a Node be fenced again; zero when nobody did.
func (s *Stop) ReleasedAt(cluster, node string) time.Time {
	k := key{cluster, node}
	return later(s.hold(k, false).ReleasedAt, s.hold(k, true).ReleasedAt)
}

// Holds lists the active holds and quarantines in a cluster, by Node; a quarantine
// comes after the hold of the same Node.
func (s *Stop) Holds(cluster string) (list []state.Hold) {
	now := s.EndBy(cluster)
	s.mu.Lock()
	for k, v := range s.waiting {
		if k.cluster == cluster && k.node != "" && v.active(now) {
			list = append(list, state.Hold{Cluster: k.cluster, Node: k.node, By: v.by, Reason: v.reason, At: v.at, Until: v.until})
		}
	}
	s.mu.Unlock()
	for _, h := range s.holds.All() {
		waits := slices.ContainsFunc(list, func(w state.Hold) bool { return w.Key() == h.Key() })
		if h.Cluster == cluster && holdOf(h).active(now) && !waits {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b state.Hold) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Key(), b.Key()))
	})
	return list
}

// endHolds notes in the store which holds are over, so that no clock which goes back, or
// is not known to be right, brings one back. The record stays: it may say that the runs
// before it count no more.
func (s *Stop) endHolds(ctx context.Context) {
	over := func(h state.Hold) bool { v := holdOf(h); return v.by != "" && !v.active(s.EndBy(h.Cluster)) }
	for _, h := range s.holds.All() {
		if !over(h) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, saveTime)
		k, ended := key{h.Cluster, h.Node}, false
		err := s.changeHold(ctx, k, h.Quarantine, func(now *state.Hold) bool {
			ended = over(*now) // unless another instance was faster
			now.By = ""
			return ended
		})
		cancel()
		if err == nil && ended {
			s.emitHoldOver(k, h.By)
		}
	}
}

func (s *Stop) emitHoldOver(k key, by string) {
	s.opt.Emit(event.Event{Type: event.Ordered, Cluster: k.cluster, Node: k.node, Message: "the hold by " + by + " is over"})
	s.wake(k.cluster)
}

// Prune forgets the holds that ended before a time: no run that is kept asks for them.
func (s *Stop) Prune(ctx context.Context, store state.Store, before time.Time) (err error) {
	for _, h := range s.holds.All() {
		if end := h.Ended(); end.IsZero() || !end.Before(before) {
			continue
		}
		if e := s.holds.Delete(ctx, store, h); e != nil && !errors.Is(e, state.ErrConflict) { // else there is a newer one
			err = errors.Join(err, e)
		}
	}
	return err
}
