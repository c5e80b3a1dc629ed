package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
)

// takeover is what a run takes over from its probe.
type takeover struct {
	session *power.Session // with the BMC; nil if there is none
	look    *run.Admitted  // at the cluster; nil: the run looks anew
}

// start makes a draft an open run and starts its worker; s may be nil. The gates that depend
// on other runs are evaluated again under the lock that lists the run, so two callers cannot
// both pass. A *reason.Refusal says which gate failed meanwhile. // I11, I12
func (c *Cluster) start(ctx context.Context, a cluster.Candidate, draft remediate.Run, s *power.Session) (remediate.Run, error) {
	leadership, r, err := c.reservePlace(a, draft)
	if err != nil {
		return r, err
	}
	defer leadership.Leave()
	return c.saveAndStart(ctx, leadership, a, r, takeover{session: s})
}

// startAsync is start for the deciding loop. It does not wait for the audit log and the
// store, so that a slow one does not delay other candidates. It returns when to consider the
// candidate again; zero: it requests a decision itself. // L2
func (c *Cluster) startAsync(ctx context.Context, a cluster.Candidate, draft remediate.Run, with takeover, now time.Time) time.Time {
	leadership, r, err := c.reservePlace(a, draft)
	if err != nil {
		c.reportNotStarted(ctx, a, with.session, err)
		return now.Add(gateRetry)
	}
	defer leadership.Leave()
	leadership.Go(func(ctx context.Context) {
		_, err := c.saveAndStart(ctx, leadership, a, r, with)
		if err == nil {
			return
		}
		c.reportNotStarted(ctx, a, with.session, err)
		select {
		case <-ctx.Done():
		case <-time.After(gateRetry):
			c.Wake()
		}
	})
	return time.Time{}
}

// reportNotStarted reports why a candidate did not become a run, and closes its session.
func (c *Cluster) reportNotStarted(ctx context.Context, a cluster.Candidate, s *power.Session, err error) {
	if r, ok := reason.AsRefusal(err); ok { // other errors were reported where they occurred
		now := time.Now()
		c.recordRefusal(a, startGate(r), now.Add(gateRetry), now)
		c.refused.tell(now)
	}
	if s != nil {
		s.Close(ctx)
	}
}

// startGate is the gate of a start that was refused after all other gates had passed.
func startGate(r *reason.Refusal) reason.Gate {
	return reason.Gate{Name: "start", Reason: r.Reason, Value: r.Message, Threshold: "still free", Source: "state"}
}

// reservePlace lists a run as open if the limits allow it, and enters the leadership: a run
// starts in the leadership in which it was decided, which ends only after that. The caller
// leaves the leadership if err is nil. // I19
func (c *Cluster) reservePlace(a cluster.Candidate, draft remediate.Run) (*lead.Leadership, remediate.Run, error) {
	now := time.Now().UTC()
	draft.ID = cluster.NewRunID(now)
	r := remediate.Begin(draft, now)
	leadership := c.opt.Lead.Enter()
	if leadership == nil {
		why := cmp.Or(c.opt.Lead.WhyNot(), "this instance is releasing ownership of the cluster; send the order to the next owner")
		return nil, r, &reason.Refusal{Reason: reason.NotOwner, Message: why}
	}
	if err := c.model.Reserve(a, r, c.opt.Slots.Count(), c.runs.releasedAt(r.Target, run.Fresh{}), now); err != nil {
		leadership.Leave()
		return nil, r, err
	}
	return leadership, r, nil
}

// saveAndStart records and saves a reserved run and starts its worker. If that fails it
// removes the reservation.
func (c *Cluster) saveAndStart(ctx context.Context, leadership *lead.Leadership, a cluster.Candidate, r remediate.Run, with takeover) (remediate.Run, error) {
	if err := c.Requested.hold(ctx, r); err != nil {
		c.model.Runs.Drop(r.ID)
		return r, err
	}
	r.Sessions.Open = with.session != nil && r.Limits.SessionTimeout > 0
	var started event.Event
	var saved remediate.Run
	err := c.TakeSlot(ctx, r) // first: a run that finds no slot has no start in the audit log, which nothing would end there. One that is not used is freed soon
	if err == nil {
		started, err = c.recordStart(a, r)
	}
	if err == nil {
		if saved, err = c.runs.Save(ctx, r); err != nil {
			failed := event.Event{Type: event.Failed, Node: r.Target.Node, Message: "save a new run: " + err.Error()}
			if errors.Is(err, state.ErrNotOwner) { // certainly not in the store
				failed.Run, failed.Message = r.ID, event.NotStarted+failed.Message
			}
			c.emit(failed)
			err = asUncertain(err)
		}
	}
	if _, uncertain := errors.AsType[uncertainSave](err); uncertain && leadership.Spawn(func(ctx context.Context) { c.abortUncertain(ctx, r) }) {
		return r, err
	}
	if err != nil {
		c.model.Runs.Drop(r.ID)
		return r, err
	}
	c.emit(started)
	c.Runner.Start(saved, with.session, with.look)
	return saved, nil
}

// recordStart writes the start of a run to the audit log. The error is a *reason.Refusal. // I24
func (c *Cluster) recordStart(a cluster.Candidate, r remediate.Run) (event.Event, error) {
	inputs := "" // for the audit log; "" if nothing knows since when the target was not healthy
	if !a.Since.IsZero() {
		inputs = "unhealthySince=" + a.Since.UTC().Format(time.RFC3339)
	}
	started, err := c.runs.Record(event.Event{
		Type: event.Started, Node: r.Target.Node, Machine: r.Target.WithoutNode(), Run: r.ID, Step: r.Step, Check: r.CheckID, Gates: a.Gates, Inputs: inputs,
		Message: cmp.Or(r.Trigger, "manual fence"),
	})
	if err == nil {
		return started, nil
	}
	if event.PerhapsRecorded(err) {
		c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Run: r.ID, Message: event.NotStarted + "the audit log may have the start nevertheless: " + err.Error()})
	}
	return started, &reason.Refusal{Reason: reason.AuditFailed, Message: "write the start of the run to the audit log: " + err.Error()}
}

// TakeSlot takes a slot for a power cycle, also by another remediator; a deletion needs none. An order from a person takes a
// slot even when none is free.
func (c *Cluster) TakeSlot(ctx context.Context, r remediate.Run) error {
	if cluster.DeletesOnly(&r) {
		return nil
	}
	limit := max(1, c.opt.Limits.Now().Guards.MaxInFlightTotal)
	if r.Manual != nil {
		limit = lead.EverySlot
	}
	free, err := c.opt.Lead.TakeSlot(ctx, limit, r.ID)
	switch {
	case err != nil:
		c.runs.saves.note(err, time.Now())
		c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Message: reason.Sentence(err)})
		return err
	case !free:
		return &reason.Refusal{Reason: reason.TotalInFlight, Message: "as many runs are in flight over all clusters as guards.maxInFlightTotal allows"}
	}
	return nil
}

// uncertainSave is the error of a first save that the store may have done all the same: its
// answer may have been lost.
type uncertainSave struct{ error }

// Unwrap returns the error of the store.
func (u uncertainSave) Unwrap() error { return u.error }

// asUncertain marks an error of a first save as uncertain, unless it says that nothing was
// written.
func asUncertain(err error) error {
	if errors.Is(err, state.ErrNotOwner) {
		return err
	}
	return uncertainSave{err}
}

// abortUncertain ends a run whose first record may be in the store although the save failed:
// the next owner of the cluster would find it open, beside a later run on the same host. The
// run stays reserved until its end is stored, or until ctx ends; the next owner then loads
// what is in the store. // I19
func (c *Cluster) abortUncertain(ctx context.Context, r remediate.Run) {
	r = remediate.AbortUnsaved(r, time.Now().UTC())
	for {
		saved, err := state.SaveRun(ctx, c.opt.Lead.Store(), r)
		c.runs.saves.note(err, time.Now())
		switch {
		case err == nil:
			c.showEnded(saved)
			return
		case errors.Is(err, state.ErrNotOwner):
			c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Run: r.ID, Message: "abort the run, whose start was not confirmed by the store: " + err.Error() + "; another instance may find it open and continue it"})
			return
		}
		switch inStore, err := state.GetRun(ctx, c.opt.Lead.Store(), r.ID); {
		case err == nil && !inStore.Open(): // again only the answer was lost
			c.showEnded(inStore)
			return
		case err == nil:
			r.Version = inStore.Version
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(run.SaveRetry):
		}
	}
}

// showEnded puts a run that has ended into the Model and reports its end.
func (c *Cluster) showEnded(r remediate.Run) {
	c.model.Runs.Put(r)
	c.emit(event.Event{Type: event.Stepped, Node: r.Target.Node, Run: r.ID, Step: r.Step, Reason: r.Reason, Message: r.Note, Began: r.Began(), Left: r.Left()})
	c.Wake()
}

const (
	rerunAfter = 10 * time.Second // minimum time between two runs on one target
	rerunMax   = 10 * time.Minute // upper limit of that time after many runs without an action
)

// backOffGates returns a failing gate while the last run on the target ended too recently.
// The wait doubles with each run in a row that ended without an action. It returns nil when
// enough time has passed.
func (c *Cluster) backOffGates(a cluster.Candidate, now time.Time) []reason.Gate {
	ended := c.model.Runs.EndedOn(a.Draft.Target, now)
	if len(ended) == 0 {
		return nil
	}
	wait, unproductive := rerunAfter, 0
	for i, r := range ended {
		if !endedWithoutAction(r) || i > 0 && ended[i-1].Started.Sub(r.Ended) > 2*rerunMax {
			break
		}
		if unproductive++; unproductive > 1 {
			wait = min(2*wait, rerunMax)
		}
	}
	next := ended[0].Ended.Add(wait)
	if !now.Before(next) {
		return nil
	}
	return []reason.Gate{{
		Name: "backOff", Reason: reason.PowerInterval, Until: next, Source: "state", Threshold: wait.String(),
		Value: fmt.Sprintf("the last run ended at %s; %d runs in a row ended without an action", ended[0].Ended.UTC().Format(time.RFC3339), unproductive),
	}}
}

// endedWithoutAction says whether a run that a check asked for ended before it did anything.
func endedWithoutAction(r remediate.Run) bool {
	return r.Step == remediate.Aborted && !r.Intervened && r.Manual == nil
}

// A Waiting run whose pause is over begins step 1 again only if every gate passes that a new run
// must pass: the guards, the limits, the check. It gets the order of a person who retries, given
// by fenced itself. The run then reads all preconditions again, as it does for a person.

// resumer lets the Waiting runs of a cluster go on.
type resumer struct {
	c       *Cluster
	refused *refusals
}

// consider considers every Waiting run that is due. It returns when to consider them again;
// zero: after the next change.
func (w *resumer) consider(now time.Time) (due time.Time) {
	c, live := w.c, map[pair]bool{}
	for _, r := range c.model.Runs.Due() {
		a := c.model.Objects.CandidateForRetry(r)
		a.Protected = c.opt.Hosts.Protected(r.Target) // I13
		live[pair{target: a.Key}] = true
		g, refused := cluster.FirstFailing(c.gates(a, nil, now))
		if !refused {
			g, refused = cluster.FirstFailing(c.model.StillAsked(a, now))
		}
		if refused {
			w.note(a, g, now)
			due = times.Sooner(due, recheckAt(g, now))
			continue
		}
		leadership := c.opt.Lead.Enter()
		if leadership == nil {
			continue
		}
		c.model.Runs.BeginRetry(r.ID)
		leadership.Go(func(ctx context.Context) {
			defer c.model.Runs.EndRetry(r.ID)
			w.resume(ctx, a)
			select { // the run begins, or is considered again
			case <-ctx.Done():
			case <-time.After(gateRetry):
				c.Wake()
			}
		})
		leadership.Leave()
	}
	w.refused.endAllBut(live, func(Refused) progress { return running }, now)
	return times.Sooner(due, w.refused.tell(now))
}

// resume asks the gates again, with fresh reads of the cluster, takes a slot and gives the order.
// Identity and power of the host are read by the run itself.
func (w *resumer) resume(ctx context.Context, a cluster.Candidate) {
	c, r := w.c, a.Draft
	p := c.probes.lookForContenders(ctx, r)
	now := time.Now()
	if g, refused := cluster.FirstFailing(c.gates(a, p, now)); refused {
		w.note(a, g, now)
		w.refused.tell(now)
		return
	}
	slots := c.opt.Slots.Count()
	if err := c.model.ReserveRetry(a, slots, c.runs.releasedAt(r.Target, p.look.Fresh), now); err != nil {
		w.reportError(a, err)
		return
	}
	counted := r
	counted.Manual = nil // fenced's own order waits for a free slot
	err := c.TakeSlot(ctx, counted)
	if err == nil {
		o := wire.Order{Cluster: c.opt.Name, Actor: remediate.SelfActor, Reason: "it waited for " + string(r.Reason)}
		_, err = c.Order(ctx, r.ID, o, "retries", func(r remediate.Run) (remediate.Run, error) {
			if r.Step != remediate.Waiting || !r.Wait.Due {
				return r, &reason.Refusal{Reason: reason.OrderRefused, Message: "the run is not due any more"}
			}
			r.Retry = o.ForRecord()
			return r, nil
		})
	}
	if err != nil {
		w.reportError(a, err)
	}
}

// note stores why a Waiting run does not go on.
func (w *resumer) note(a cluster.Candidate, g reason.Gate, now time.Time) {
	r := a.Draft
	w.refused.note(pair{target: a.Key}, Refused{
		CheckID: r.CheckID, Node: r.Target.Node, Machine: r.Target.MachineKey(), Run: r.ID, Gate: g, NextTry: nextTry(g, now),
	}, now)
}

func (w *resumer) reportError(a cluster.Candidate, err error) {
	if r, ok := reason.AsRefusal(err); ok { // other errors were reported where they occurred
		now := time.Now()
		w.note(a, startGate(r), now)
		w.refused.tell(now)
	}
}

// recorder holds the Nodes whose last record in the audit log failed, and why. The failure
// is reported once, and shown by explain.
type recorder struct {
	mu     sync.Mutex
	failed map[string]string
	told   event.ToldOf[string, bool]
}

// update stores the result of the last record about a Node, and says whether it is the first
// failure.
func (r *recorder) update(node string, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.failed, node); err != nil {
		r.failed[node] = err.Error()
	}
	return r.told.News(node, err != nil)
}

// gates returns a failing gate for a Node whose last record failed, else nil. // L4
func (r *recorder) gates(node string) []reason.Gate {
	r.mu.Lock()
	why, failed := r.failed[node]
	r.mu.Unlock()
	if !failed {
		return nil
	}
	return []reason.Gate{{Name: "audit", Reason: reason.AuditFailed, Value: why, Threshold: "a durable record", Source: "audit log"}}
}

// savesRecent is how long a failed save counts. Whoever has a run to save tries again sooner, so while the store is in
// trouble, this does not pass; and it does not last when nobody is left who could show that it has passed.
const savesRecent = 30 * time.Second

// saves knows whether the last save of a run failed, and why.
type saves struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// note stores the result of a save. That this instance does not own the cluster, or stops, or that somebody else has changed
// the record, says nothing about the store: no other run waits for that.
func (s *saves) note(err error, now time.Time) {
	for _, other := range []error{state.ErrNotOwner, state.ErrConflict, state.ErrExists, context.Canceled} {
		if errors.Is(err, other) {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.err = now, err
}

// trouble is why no run could be saved a moment ago, "" if one could.
func (s *saves) trouble(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil || now.Sub(s.at) >= savesRecent {
		return ""
	}
	return "a run could not be saved at " + s.at.UTC().Format(time.TimeOnly+"Z") + ": " + s.err.Error()
}

// Record implements run.Cluster: it makes an event durable before the action that it
// announces, and returns it for the stream of events. After an error nothing destructive may
// be done. // I24
func (rc *runCluster) Record(ev event.Event) (event.Event, error) {
	if rc.opt.Record == nil {
		return ev, nil
	}
	ev.Cluster, ev.Recorded = rc.opt.Name, true
	err := rc.opt.Record(ev)
	if rc.recorder.update(cmp.Or(ev.Node, ev.Machine), err) {
		rc.opt.Emit(event.Event{
			Type: event.Failed, Cluster: rc.opt.Name, Node: ev.Node, Machine: ev.Machine, Run: ev.Run, Step: ev.Step, Action: ev.Action, Reason: reason.AuditFailed,
			Message: "record the action in the audit log before it is done; fenced does nothing destructive until that works: " + err.Error(),
		})
	}
	return ev, err
}

// Save implements run.Cluster: it stores a run by compare-and-set, and then puts it into the
// Model. // I19
func (rc *runCluster) Save(ctx context.Context, r remediate.Run) (remediate.Run, error) {
	before, _ := rc.opt.Model.Runs.Get(r.ID)
	if hosts.IsFalseOff(r) && !hosts.IsFalseOff(before) {
		if err := rc.opt.Hosts.Freeze(ctx, r); err != nil {
			return r, err
		}
	}
	saved, err := state.SaveRun(ctx, rc.opt.Lead.Store(), r)
	rc.saves.note(err, time.Now())
	if err != nil {
		return r, err
	}
	rc.opt.Model.Runs.Put(saved)
	if before.Version == 0 || before.Step != saved.Step || before.Attempt != saved.Attempt {
		rc.opt.Saved()
	}
	return saved, nil
}

// TellRequests implements run.Cluster.
func (rc *runCluster) TellRequests(ctx context.Context, r remediate.Run) {
	rc.opt.TellRequests(ctx, r.ID)
}

// Show implements run.Cluster.
func (rc *runCluster) Show(r remediate.Run) { rc.opt.Model.Runs.Put(r) }
