package admit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// askedKept is how long a record stays after its end: the limits of a day count it.
const askedKept = 24 * time.Hour

// Load replaces the records by those in the store. begins: a leadership begins with them. Otherwise
// nothing is changed in a leadership, because the records here are newer. A decision is requested
// only if a record of this cluster has changed. // I19
func (h *Handovers) Load(all []escalate.Record, begins bool) {
	if begins && h.records.Begin(all) || !begins && h.records.Update(all) {
		h.c.Wake()
	}
}

// Records lists the records of the cluster.
func (h *Handovers) Records() []escalate.Record { return h.records.Records() }

// Any says whether an object that fenced made may exist.
func (h *Handovers) Any() bool {
	return slices.ContainsFunc(h.records.Records(), func(r escalate.Record) bool { return r.Blocking() })
}

// Reserve makes it durable that an object is about to be made for a target, with the mark that it
// gets. The gates are evaluated once more. From then on nobody else acts on the target until the
// object is known to be gone. An error is a *reason.Refusal, or an error of the store. // I19, I22
func (h *Handovers) Reserve(ctx context.Context, o Ask, object escalate.Object) (escalate.Record, error) {
	now := time.Now()
	if g, refused := cluster.FirstFailing(h.c.gates(o.candidate, nil, now)); refused {
		return escalate.Record{}, reason.RefusalOf(g)
	}
	releasedAt := h.c.opt.Stop.ReleasedAt(h.c.opt.Name, h.c.runs.Names(o.Run.Target, run.Fresh{})...)
	if err := h.writing.Acquire(ctx, 1); err != nil {
		return escalate.Record{}, err
	}
	defer h.writing.Release(1)
	object.Mark = h.c.opt.StoreID + "/" + h.c.opt.Name + "/" // and the ID of the record
	r, err := h.records.Reserve(o.candidate, object, h.c.opt.Slots.Count(), releasedAt, now)
	if err != nil {
		return r, err
	}
	defer h.records.Reserved(r.ID)
	h.mu.Lock()
	delete(h.wanted, pair{o.candidate.Draft.CheckID, o.candidate.Key})
	h.mu.Unlock()
	slotted := remediate.Run{ID: r.ID, Target: r.Target, Strategy: remediate.PowerCycle}
	if err := h.c.takeSlot(ctx, slotted); err != nil {
		h.unreserve(r)
		return r, err
	}
	saved, err := state.SaveAsked(ctx, h.c.opt.Lead.Store(), r)
	if err != nil {
		return r, h.withdraw(ctx, r, err)
	}
	h.records.Put(saved)
	return saved, nil
}

// withdraw takes back a record whose newest object is not made, because it was perhaps not stored. If it
// was stored after all, that is changed, too: else the next write would be refused for ever. If that is not
// known, it stays, as if its object might exist. // I22, L4
func (h *Handovers) withdraw(ctx context.Context, r escalate.Record, cause error) error {
	err := h.reread(ctx, cause)
	if stored, known := h.records.Get(r.ID); known && stored.Newest().Made.Equal(r.Newest().Made) {
		err = errors.Join(err, h.removeNewest(ctx, stored))
	}
	return err
}

// unreserve removes the newest object of a record, which was not made, from the Model.
func (h *Handovers) unreserve(r escalate.Record) {
	r.Objects = slices.Clone(r.Objects[:len(r.Objects)-1])
	if len(r.Objects) == 0 {
		h.records.Drop(r.ID)
	} else {
		h.records.Put(r)
	}
	h.c.Wake() // the target is to be considered again // L4
}

// stands says whether a record still says that its newest object may exist. // I22
func (h *Handovers) stands(r escalate.Record) bool {
	now, known := h.records.Get(r.ID)
	return known && now.Blocking() && now.Newest().Made.Equal(r.Newest().Made)
}

// NotMade records that the newest object of a record was certainly not made. If that cannot be
// stored, the record goes on as if the object might exist. One that a person gave up meanwhile stays so.
func (h *Handovers) NotMade(ctx context.Context, r escalate.Record) error {
	if err := h.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer h.writing.Release(1)
	if !h.stands(r) {
		return nil
	}
	return h.removeNewest(ctx, r)
}

// removeNewest removes the newest object of a record, which was not made. h.writing is held.
func (h *Handovers) removeNewest(ctx context.Context, r escalate.Record) error {
	kept := r
	kept.Objects = slices.Clone(r.Objects[:len(r.Objects)-1])
	if len(kept.Objects) > 0 {
		return h.save(ctx, kept)
	}
	return h.delete(ctx, r)
}

// Change stores a change of the newest object of a record.
func (h *Handovers) Change(ctx context.Context, id string, change func(*escalate.Object)) error {
	if err := h.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer h.writing.Release(1)
	r, known := h.records.Get(id)
	if !known || !r.Blocking() || r.Unreadable != "" {
		return fmt.Errorf("no record %s of another remediator is open", id)
	}
	r.Objects = slices.Clone(r.Objects)
	change(&r.Objects[len(r.Objects)-1])
	return h.save(ctx, r)
}

// FreePlace stores that a record has no place in the limits of what is in flight any more: it stands
// still, or it has had its place for as long as a run may. Its target stays blocked. // I11, I22
func (h *Handovers) FreePlace(ctx context.Context, id string, standsStill bool, now time.Time) error {
	if err := h.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer h.writing.Release(1)
	r, known := h.records.Get(id)
	limit := h.c.opt.Limits.Run().RunTimeout
	if !known || !r.Idle.IsZero() || !standsStill && (limit == 0 || now.Sub(r.Newest().Made) < limit) {
		return nil
	}
	r.Idle = now.UTC()
	return h.save(ctx, r)
}

// save writes a record. h.writing is held.
func (h *Handovers) save(ctx context.Context, r escalate.Record) error {
	saved, err := state.SaveAsked(ctx, h.c.opt.Lead.Store(), r)
	if err != nil {
		return h.reread(ctx, err)
	}
	h.records.Put(saved)
	h.c.Wake()
	return nil
}

// delete deletes a record. h.writing is held.
func (h *Handovers) delete(ctx context.Context, r escalate.Record) error {
	if err := state.DeleteAsked(ctx, h.c.opt.Lead.Store(), r); err != nil {
		return h.reread(ctx, err)
	}
	h.records.Drop(r.ID)
	h.c.Wake()
	return nil
}

// reread reads the records again after a write of which it is not known whether it was made. h.writing is
// held: else it could replace a record by one that is older.
func (h *Handovers) reread(ctx context.Context, cause error) error {
	if all, err := state.LoadAsked(ctx, h.c.opt.Lead.Store()); err == nil || errors.Is(err, state.ErrUnreadable) {
		h.records.Reread(all)
		h.c.Wake() // the write may have been made // L4
	}
	return cause
}

// Next decides the next step for the object of a record, as it was just read. deleting is since when it
// is known to be deleted; zero: it is not. ok is false before the view of the cluster is complete.
func (h *Handovers) Next(r escalate.Record, live *policy.Request, deleting, now time.Time) (step escalate.Step, ignored string, ok bool) {
	if !h.c.view.View().Synced {
		return step, "", false
	}
	t, ok := h.records.Target(&r, now)
	if !ok {
		return step, "", false
	}
	s := escalate.Situation{AskedTarget: t, Object: r.Newest(), Live: live, DeletingSince: deleting}
	return escalate.Next(s, now), escalate.Ignored(s, now), true
}

// GiveUp ends a record by order of a person: nobody waits for its object any more, and fenced leaves
// that as it is. A record that cannot be read is deleted. // I24
func (h *Handovers) GiveUp(ctx context.Context, id string, o wire.Order) error {
	if err := h.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer h.writing.Release(1)
	r, known := h.records.Get(id)
	if !known || !r.Ended.IsZero() {
		return &reason.Refusal{Reason: reason.NoRun, Message: "record " + id + " has ended"}
	}
	if err := h.c.opt.Lead.Refuse(); err != nil {
		return err
	}
	o.Cluster, o.Node, o.Machine, o.Run = h.c.opt.Name, r.Target.Node, r.Target.WithoutNode(), id
	ev, err := h.WriteEvent(o.Event("gives up " + r.Asks()))
	if err != nil {
		return fmt.Errorf("write the order to the audit log before it is carried out: %w", err)
	}
	if r.Unreadable != "" {
		err = h.delete(ctx, r)
	} else {
		r.GivenUp, r.Ended = o.ForRecord(), time.Now().UTC()
		err = h.save(ctx, r)
	}
	if err == nil {
		h.c.emit(ev)
	}
	return err
}

// Settle ends a record without an object when nothing more is to be asked, and deletes it a day
// later.
func (h *Handovers) Settle(ctx context.Context, r escalate.Record, now time.Time) error {
	if err := h.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer h.writing.Release(1)
	if !r.Ended.IsZero() {
		if now.Sub(r.Ended) < askedKept {
			return nil
		}
		return h.delete(ctx, r)
	}
	if !h.c.view.View().Synced {
		return nil
	}
	t, ok := h.records.Target(&r, now)
	if !ok {
		return nil
	}
	ends, well := escalate.Ends(t)
	if !ends {
		return nil
	}
	r.Ended, r.Recovered = now.UTC(), well
	return h.save(ctx, r)
}
