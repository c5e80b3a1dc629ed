package stop

import (
	"context"
	"errors"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/state"
)

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
func (r *holdRecords) release(ctx context.Context, o order.Order, k key, quarantine bool) (released bool, err error) {
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
	return later(r.record(k, false).ReleasedAt, r.record(k, true).ReleasedAt)
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
