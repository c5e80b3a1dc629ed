package stop

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/state"
)

// key is what a stop is about: one Node, or a cluster where node is empty; all clusters
// where both are.
type key struct{ cluster, node string }

// stop is a pause or a hold by a person. The zero value is none.
type stop struct {
	by, reason string
	at, until  time.Time // until is zero for one that somebody must end
}

// active says whether there is such a stop, and its time is not over.
func (s stop) active(now time.Time) bool {
	return s.by != "" && (s.until.IsZero() || now.Before(s.until))
}

// orLonger is the stop, or the one that is active there if that ends no earlier: then
// that goes on under the name and the reason of who gave it.
func (s stop) orLonger(old stop, now time.Time) stop {
	if old.active(now) && (old.until.IsZero() || !s.until.IsZero() && !old.until.Before(s.until)) {
		return old
	}
	return s
}

// untilText is the end of a stop in a sentence.
func untilText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.UTC().Format(time.RFC3339)
}

func (s *Stop) getWaiting(k key) stop {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[k]
}

func (s *Stop) setWaiting(k key, v stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[k] = v
}

// dropWaiting forgets that very stop.
func (s *Stop) dropWaiting(k key, v stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[k] == v {
		delete(s.waiting, k)
	}
}

// stored is the stop that the store has for a key.
func (s *Stop) stored(k key) stop {
	if k.node == "" {
		return pauseOf(s.Record(k.cluster))
	}
	return holdOf(s.hold(k, false))
}

// begin makes an order a stop. It binds at once, whatever the store does, and shortens
// nothing that is there. verb and state are for people. // I23
func (s *Stop) begin(ctx context.Context, k key, o order.Order, verb, standing string) order.Outcome {
	v := stop{by: o.Actor, reason: o.Reason, at: time.Now().UTC(), until: o.Ends(s.beginBy(k.cluster))}
	length := untilText(v.until)
	end := s.EndBy(k.cluster)
	v = v.orLonger(s.getWaiting(k), end).orLonger(s.stored(k), end)
	s.setWaiting(k, v)
	s.wake(k.cluster)
	s.opt.Emit(o.Event(verb + length))
	out := order.Outcome{}
	if err := s.save(ctx, k, v); err != nil {
		out.Unsaved = standing + " by this daemon alone, and until it restarts: the state could not be saved, so order it" +
			" at every other fenced that shares the store, too: " + err.Error()
		s.opt.Emit(event.Event{Type: event.Failed, Cluster: k.cluster, Node: k.node, Message: out.Unsaved})
	} else if stored := s.stored(k); stored.active(end) {
		v = stored // longer than what was known here, perhaps
	}
	if out.Until = v.until; v.by != o.Actor || v.reason != o.Reason {
		out.Earlier = v.by + ": " + v.reason
	}
	return out
}

// save stores a stop that binds already, unless it was taken back, or replaced, meanwhile.
func (s *Stop) save(ctx context.Context, k key, v stop) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	if err := s.lockSaving(ctx); err != nil {
		return err
	}
	defer s.saving.Release(1)
	if s.getWaiting(k) != v {
		return nil
	}
	var err error
	if k.node == "" {
		err = s.savePause(ctx, k.cluster, v)
	} else {
		err = s.saveHold(ctx, k, v)
	}
	if err == nil {
		s.dropWaiting(k, v)
	}
	return err
}

// syncWaiting saves the stops that wait for the store, and ends those whose time is over.
func (s *Stop) syncWaiting(ctx context.Context) {
	s.mu.Lock()
	waiting := maps.Clone(s.waiting)
	s.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(waiting), compareKeys) {
		v := waiting[k]
		switch {
		case v.active(s.EndBy(k.cluster)):
			_ = s.save(ctx, k, v)
			continue
		case k.node == "":
			s.beQuiet(k.cluster, s.reached(v.until))
			s.dropWaiting(k, v)
		default:
			s.dropWaiting(k, v)
			s.emitHoldOver(k, v.by)
		}
	}
}

// overdue says why a stop goes on although this clock has passed its end; "" where it has not.
func (s *Stop) overdue(until time.Time) string {
	if until.IsZero() || s.clock.now().Before(until) {
		return ""
	}
	return " (it goes on while the API server was not seen, or its clock has not passed the end)"
}

// pauseOf is the pause in a cluster's record.
func pauseOf(r state.Cluster) stop {
	if !r.Paused {
		return stop{}
	}
	return stop{cmp.Or(r.PausedBy, "nobody known"), r.PausedReason, r.PausedAt, r.PausedUntil}
}

// holdOf is the hold in a record, unless it was released.
func holdOf(h state.Hold) stop {
	if h.ReleasedBy != "" {
		return stop{}
	}
	return stop{h.By, h.Reason, h.At, h.Until}
}
