package admit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// start makes a draft an open run and gives it a worker; s may be nil. What other
// runs can close is asked again here, in one stroke with taking the place: two
// callers cannot both pass. A *reason.Refusal says which gate closed meanwhile. // I11, I12
func (c *Cluster) start(ctx context.Context, a candidate, draft remediate.Run, s *power.Session) (remediate.Run, error) {
	t, r, err := c.place(a, draft)
	if err != nil {
		return r, err
	}
	defer t.Leave()
	return c.begin(ctx, t, a, r, s)
}

// startSoon is start for a check, which does not wait for it: while record and store
// are slow, the deciding loop goes on with others. It gives when the candidate is to
// be asked about again. // L2
func (c *Cluster) startSoon(ctx context.Context, a candidate, draft remediate.Run, s *power.Session, now time.Time) time.Time {
	t, r, err := c.place(a, draft)
	if err != nil {
		c.notStarted(ctx, a, s, err)
		return now.Add(askEvery)
	}
	defer t.Leave()
	t.Go(func(ctx context.Context) {
		_, err := c.begin(ctx, t, a, r, s)
		if err == nil {
			return
		}
		c.notStarted(ctx, a, s, err)
		select {
		case <-ctx.Done():
		case <-time.After(askEvery):
			c.Wake()
		}
	})
	return time.Time{}
}

// notStarted tells why a candidate did not become a run.
func (c *Cluster) notStarted(ctx context.Context, a candidate, s *power.Session, err error) {
	if r, ok := reason.AsRefusal(err); ok { // any other was told of
		c.refuse(a, reason.Gate{Name: "start", Reason: r.Reason, Value: r.Message, Threshold: "still free", Source: "state"})
	}
	if s != nil {
		s.Close(ctx)
	}
}

// place lists a run as open if nothing stands against it, and enters the tenure: a run
// belongs to the one that it was decided in, which ends only after it was begun. // I19
func (c *Cluster) place(a candidate, draft remediate.Run) (*lead.Leadership, remediate.Run, error) {
	now := time.Now().UTC()
	draft.ID = newRunID(now)
	r := remediate.Begin(draft, now)
	t := c.opt.Lead.Enter()
	if t == nil {
		why := cmp.Or(c.opt.Lead.WhyNot(), "this instance gives the cluster up")
		return nil, r, &reason.Refusal{Reason: reason.NotOwner, Message: why}
	}
	forgiven := c.opt.Stop.ReleasedAt(c.opt.Name, r.Target.Node)
	if err := c.book.reserve(a, r, c.opt.Slots.Count(), forgiven, now); err != nil {
		t.Leave()
		return nil, r, err
	}
	return t, r, nil
}

// begin records and saves a run that has its place, or takes that away again.
func (c *Cluster) begin(ctx context.Context, t *lead.Leadership, a candidate, r remediate.Run, s *power.Session) (remediate.Run, error) {
	started, err := c.runs.Record(event.Event{
		Type: event.Started, Node: r.Target.Node, Run: r.ID, Step: r.Step, Check: r.CheckID, Gates: a.gates,
		Message: cmp.Or(r.Trigger, "manual fence"),
	})
	var saved remediate.Run
	if err != nil {
		if event.PerhapsRecorded(err) { // I24
			c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Run: r.ID, Message: "not begun: " + err.Error()})
		}
		err = &reason.Refusal{Reason: reason.AuditFailed, Message: "the audit log cannot be written: " + err.Error()}
	} else {
		saved, err = c.saveFirst(ctx, r)
	}
	if _, perhaps := errors.AsType[unsure](err); perhaps && t.Spawn(func(ctx context.Context) { c.takeBack(ctx, r) }) {
		return r, err
	}
	if err != nil {
		c.book.drop(r.ID)
		return r, err
	}
	c.emit(started)
	c.Runner.Start(saved, s)
	return saved, nil
}

// saveFirst takes a slot for a run and saves it. An order by a person does not wait
// for a slot, but has one like all others.
func (c *Cluster) saveFirst(ctx context.Context, r remediate.Run) (remediate.Run, error) {
	limit := max(1, c.opt.Guards.MaxInFlightTotal)
	if r.Manual != nil {
		limit = lead.EverySlot
	}
	free, err := c.opt.Slots.Take(ctx, c.opt.Lead.Store(), limit, c.opt.Name, r.ID)
	switch {
	case err != nil:
		c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Message: reason.Sentence(err)})
		return r, err
	case !free:
		return r, &reason.Refusal{Reason: reason.TotalInFlight, Message: "as many runs are in flight over all clusters as guards.maxInFlightTotal allows"}
	}
	saved, err := c.runs.Save(ctx, r)
	if err != nil {
		c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Message: "save a new run: " + err.Error()})
		return r, unsureOf(err)
	}
	return saved, nil
}

// newRunID sorts by time and is unique without coordination.
func newRunID(now time.Time) string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	return strconv.FormatInt(now.UnixMilli(), 36) + "-" + hex.EncodeToString(b[:])
}
