package stop

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
)

const saveTime = 5 * time.Second // bounds the save of a stop, which binds before it is saved

// stored returns the stored stop of a key.
func (s *Stop) stored(k key) stop {
	if k.node == "" {
		return s.pauses.pause(k.cluster)
	}
	return s.holds.hold(k)
}

// begin makes an order a stop. The stop binds at once, whatever the store does, and never
// shortens one that is there. verb is what the person does, and done what is then true of the
// cluster or Node; both are for messages. // I23
func (s *Stop) begin(ctx context.Context, k key, o order.Order, verb, done string) order.Outcome {
	v := stop{by: o.Actor, reason: o.Reason, at: time.Now().UTC(), until: o.Ends(s.clocks.startBy(k.cluster))}
	length := untilText(v.until)
	end := s.EndBy(k.cluster)
	v = v.orLonger(s.unsaved.get(k), end).orLonger(s.stored(k), end)
	s.unsaved.set(k, v)
	s.clusters.wake(k.cluster)
	s.opt.Emit(o.Event(verb + length))
	out := order.Outcome{}
	if err := s.save(ctx, k, v); err != nil {
		out.Unsaved = done + " by this daemon alone, and until it restarts: the state could not be saved, so order it" +
			" at every other fenced that shares the store, too: " + err.Error()
		s.opt.Emit(k.event(event.Event{Type: event.Failed, Message: out.Unsaved}))
	} else if stored := s.stored(k); stored.active(end) {
		v = stored // it may be longer than what was known here
	}
	if out.Until = v.until; v.by != o.Actor || v.reason != o.Reason {
		out.Earlier = v.by + ": " + v.reason
	}
	return out
}

// save stores an unsaved stop, unless it was ended or replaced meanwhile.
func (s *Stop) save(ctx context.Context, k key, v stop) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	if err := s.lockSaving(ctx); err != nil {
		return err
	}
	defer s.saving.Release(1)
	if s.unsaved.get(k) != v {
		return nil
	}
	var err error
	if k.node == "" {
		err = s.pauses.save(ctx, k.cluster, v)
	} else {
		err = s.holds.save(ctx, k, v)
	}
	if err == nil {
		s.unsaved.drop(k, v)
	}
	return err
}

// lockForOrder waits until this order may change stops, but no longer than a person should
// wait.
func (s *Stop) lockForOrder(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	return s.lockSaving(ctx)
}

// lockSaving waits until the caller may change stops, as long as ctx lasts. The one who has the
// lock may be waiting for a store that hangs.
func (s *Stop) lockSaving(ctx context.Context) error {
	if err := s.saving.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait until another change is stored: %w", err)
	}
	return nil
}
