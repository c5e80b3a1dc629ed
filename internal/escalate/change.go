package escalate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// kept is how long a record stays after its end: the limits of a day count it.
const kept = 24 * time.Hour

// reserve makes it durable that an object is about to be made for a target, with the mark that it
// gets. The gates are evaluated once more. From then on nobody else acts on the target until the
// object is known to be gone. An error is a *reason.Refusal, or an error of the store. // I19, I22
func (c *Cluster) reserve(ctx context.Context, a cluster.Candidate, object request.Object) (Record, error) {
	now := time.Now()
	releasedAt, err := c.admit.MayReserve(a, now)
	if err != nil {
		return Record{}, err
	}
	if err := c.writing.Acquire(ctx, 1); err != nil {
		return Record{}, err
	}
	defer c.writing.Release(1)
	object.Mark = c.opt.StoreID + "/" + c.opt.Name + "/" // and the ID of the record
	r, err := c.records.Reserve(a, object, c.opt.Slots.Count(), releasedAt, now)
	if err != nil {
		return r, err
	}
	defer c.records.Reserved(r.ID)
	c.mu.Lock()
	delete(c.wanted, keyOf(a))
	c.mu.Unlock()
	slotted := remediate.Run{ID: r.ID, Target: r.Target, Strategy: remediate.PowerCycle}
	if err := c.admit.TakeSlot(ctx, slotted); err != nil {
		c.unreserve(r)
		return r, err
	}
	saved, err := Save(ctx, c.opt.Lead.Store(), r)
	if err != nil {
		return r, c.withdraw(ctx, r, err)
	}
	c.records.Put(saved)
	return saved, nil
}

// withdraw takes back a record whose newest object is not made, because it was perhaps not stored. If it
// was stored after all, that is changed, too: else the next write would be refused for ever. If that is not
// known, it stays, as if its object might exist. // I22, L4
func (c *Cluster) withdraw(ctx context.Context, r Record, cause error) error {
	err := c.reread(ctx, cause)
	if stored, known := c.records.Get(r.ID); known && stored.Newest().Made.Equal(r.Newest().Made) {
		err = errors.Join(err, c.removeNewest(ctx, stored))
	}
	return err
}

// unreserve removes the newest object of a record, which was not made, from the Model.
func (c *Cluster) unreserve(r Record) {
	r.Objects = slices.Clone(r.Objects[:len(r.Objects)-1])
	if len(r.Objects) == 0 {
		c.records.Drop(r.ID)
	} else {
		c.records.Put(r)
	}
	c.admit.Wake() // the target is to be considered again // L4
}

// stands says whether a record still says that its newest object may exist. // I22
func (c *Cluster) stands(r Record) bool {
	now, known := c.records.Get(r.ID)
	return known && now.Blocking() && now.Newest().Made.Equal(r.Newest().Made)
}

// notMade records that the newest object of a record was certainly not made. If that cannot be
// stored, the record goes on as if the object might exist. One that a person gave up meanwhile stays so.
func (c *Cluster) notMade(ctx context.Context, r Record) error {
	if err := c.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.writing.Release(1)
	if !c.stands(r) {
		return nil
	}
	return c.removeNewest(ctx, r)
}

// removeNewest removes the newest object of a record, which was not made. c.writing is held.
func (c *Cluster) removeNewest(ctx context.Context, r Record) error {
	kept := r
	kept.Objects = slices.Clone(r.Objects[:len(r.Objects)-1])
	if len(kept.Objects) > 0 {
		return c.save(ctx, kept)
	}
	return c.delete(ctx, r)
}

// change stores a change of the newest object of a record.
func (c *Cluster) change(ctx context.Context, id string, change func(*request.Object)) error {
	if err := c.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.writing.Release(1)
	r, known := c.records.Get(id)
	if !known || !r.Blocking() || r.Unreadable != "" {
		return fmt.Errorf("no record %s of another remediator is open", id)
	}
	r.Objects = slices.Clone(r.Objects)
	change(&r.Objects[len(r.Objects)-1])
	return c.save(ctx, r)
}

// freePlace stores that a record has no place in the limits of what is in flight any more: it stands
// still, or it has had its place for as long as a run may. Its target stays blocked. A clock that is known to be
// wrong says neither. // I11, I16, I22
func (c *Cluster) freePlace(ctx context.Context, id string, standsStill bool, now time.Time) error {
	if err := c.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.writing.Release(1)
	r, known := c.records.Get(id)
	limit := c.opt.Limits.Now().Run.RunTimeout
	if agrees, _ := c.opt.View.Clock(); agrees == remediate.No {
		return nil
	}
	if !known || !r.Idle.IsZero() || !standsStill && (limit == 0 || now.Sub(r.Newest().Made) < limit) {
		return nil
	}
	r.Idle = now.UTC()
	return c.save(ctx, r)
}

// save writes a record. c.writing is held.
func (c *Cluster) save(ctx context.Context, r Record) error {
	saved, err := Save(ctx, c.opt.Lead.Store(), r)
	if err != nil {
		return c.reread(ctx, err)
	}
	c.records.Put(saved)
	c.admit.Wake()
	return nil
}

// delete deletes a record. c.writing is held.
func (c *Cluster) delete(ctx context.Context, r Record) error {
	if err := remove(ctx, c.opt.Lead.Store(), r); err != nil {
		return c.reread(ctx, err)
	}
	c.records.Drop(r.ID)
	c.admit.Wake()
	return nil
}

// reread reads the records again after a write of which it is not known whether it was made. c.writing is
// held: else it could replace a record by one that is older.
func (c *Cluster) reread(ctx context.Context, cause error) error {
	if all, err := Load(ctx, c.opt.Lead.Store()); err == nil || errors.Is(err, state.ErrUnreadable) {
		c.records.Reread(all)
		c.admit.Wake() // the write may have been made // L4
	}
	return cause
}

// next decides the next step for the object of a record, as it was just read. deleting is since when it
// is known to be deleted; zero: it is not. ok is false while the view of the cluster is not complete, or is old. // I16
func (c *Cluster) next(r Record, live *policy.Request, deleting, now time.Time) (step Step, ignored string, ok bool) {
	if !c.opt.View.IsCurrent() {
		return step, "", false
	}
	t, ok := c.records.Target(&r, now)
	if !ok {
		return step, "", false
	}
	s := Situation{AskedTarget: t, Object: r.Newest(), Live: live, DeletingSince: deleting}
	return Next(s, now), Ignored(s, now), true
}

// giveUp ends a record by order of a person: nobody waits for its object any more, and fenced leaves
// that as it is. A record that cannot be read is deleted. // I24
func (c *Cluster) giveUp(ctx context.Context, id string, o wire.Order) error {
	if err := c.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.writing.Release(1)
	r, known := c.records.Get(id)
	if !known || !r.Ended.IsZero() {
		return &reason.Refusal{Reason: reason.NoRun, Message: "record " + id + " has ended"}
	}
	if err := c.opt.Lead.Refuse(); err != nil {
		return err
	}
	o.Cluster, o.Node, o.Machine, o.Run = c.opt.Name, r.Target.Node, r.Target.WithoutNode(), id
	ev, err := c.admit.Record(o.Event("gives up " + r.Asks()))
	if err != nil {
		return fmt.Errorf("write the order to the audit log before it is carried out: %w", err)
	}
	if r.Unreadable != "" {
		err = c.delete(ctx, r)
	} else {
		r.GivenUp, r.Ended = o.ForRecord(), time.Now().UTC()
		err = c.save(ctx, r)
	}
	if err == nil {
		c.emit(ev)
	}
	return err
}

// settle ends a record without an object when nothing more is to be asked, and deletes it a day
// later.
func (c *Cluster) settle(ctx context.Context, r Record, now time.Time) error {
	if err := c.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.writing.Release(1)
	if !r.Ended.IsZero() {
		if agrees, _ := c.opt.View.Clock(); now.Sub(r.Ended) < kept || agrees != remediate.Yes { // I15, I16
			return nil
		}
		return c.delete(ctx, r)
	}
	if !c.opt.View.IsCurrent() {
		return nil
	}
	t, ok := c.records.Target(&r, now)
	if !ok {
		return nil
	}
	ends, well := Ends(t)
	if !ends {
		return nil
	}
	r.Ended, r.Recovered = now.UTC(), well
	return c.save(ctx, r)
}

// Abort implements engine.Escalation: it gives up the record that an order names in place of a run.
func (e *Escalation) Abort(ctx context.Context, o wire.Order) (out order.Outcome, known bool, err error) {
	for _, c := range e.clusters.All() {
		if o.Cluster != "" && o.Cluster != c.opt.Name {
			continue
		}
		if r, known := c.records.Get(o.Run); known {
			out, err = c.abort(ctx, o, r)
			return out, true, err
		}
	}
	return out, false, nil
}

// abort ends a record by order of a person. While another remediator may be at work, that takes
// an order that says so. // I22
func (c *Cluster) abort(ctx context.Context, o wire.Order, r Record) (order.Outcome, error) {
	if !o.AsIs {
		return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused, Message: "record " + r.ID + " is about another remediator, which fenced cannot stop; to give the record up: fencectl abort " + r.ID + " --as-is"}
	}
	if !o.Yes {
		if why := c.whyNotGiveUp(ctx, r); why != "" {
			return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused,
				Message: why + "; make sure that no other remediator switches the host, and add --yes"}
		}
	}
	asks := r.Asks()
	if err := c.giveUp(ctx, r.ID, o); err != nil {
		return order.Outcome{}, err
	}
	return order.Outcome{Asked: asks}, nil
}

// whyNotGiveUp returns the reason why another remediator may be at work on the target of a record, or an empty string. Of a record
// that cannot be read nobody knows it.
func (c *Cluster) whyNotGiveUp(ctx context.Context, r Record) string {
	object, objects := r.Newest(), c.objects()
	switch {
	case r.Unreadable != "":
		return "which object was made cannot be read: " + r.Unreadable
	case !r.Blocking():
		return ""
	case object.MayAppear(time.Now()):
		return object.String() + " may just be being made"
	case objects == nil:
		return "whether " + object.String() + " exists cannot be read"
	}
	live, err := objects.Read(ctx, object)
	switch {
	case err != nil:
		return fmt.Sprintf("whether %s exists is not known: %v", object, err)
	case live != nil:
		return object.String() + " exists, so its remediator may be at work; delete it when that is done"
	}
	return ""
}
