package admit

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// A Waiting run whose pause is over begins step 1 again only if every gate passes that a new run
// must pass: the guards, the limits, the check. It gets the order of a person who retries, given
// by fenced itself. The run then reads all preconditions again, as it does for a person.

// resumeWaiting considers every Waiting run that is due. It returns when to consider them again;
// zero: after the next change.
func (c *Cluster) resumeWaiting(now time.Time) (due time.Time) {
	live := map[string]bool{}
	for _, r := range c.book.dueRuns() {
		a := c.book.candidateForRun(r)
		live[a.key] = true
		g, refused := firstFailing(c.gates(a, nil, now))
		if !refused {
			g, refused = firstFailing(c.book.stillAsked(r, now))
		}
		if refused {
			c.reportWaitRefusal(a, g)
			due = earliest(due, recheckAt(g, now))
			continue
		}
		leadership := c.opt.Lead.Enter()
		if leadership == nil || !c.book.beginResume(r.ID) {
			continue
		}
		leadership.Go(func(ctx context.Context) {
			defer c.book.endResume(r.ID)
			c.resume(ctx, a)
			select { // the run begins, or is considered again
			case <-ctx.Done():
			case <-time.After(gateRetry):
				c.Wake()
			}
		})
		leadership.Leave()
	}
	c.waitRefused.dropAllBut(live)
	return due
}

// resume asks the gates again, with fresh reads of the cluster, takes a slot and gives the order.
// Identity and power of the host are read by the run itself.
func (c *Cluster) resume(ctx context.Context, a candidate) {
	r := a.draft
	p := c.probes.lookForContenders(ctx, r)
	now := time.Now()
	if g, refused := firstFailing(c.gates(a, p, now)); refused {
		c.reportWaitRefusal(a, g)
		return
	}
	slots := c.opt.Slots.Count()
	if err := c.book.reserveAgain(a, slots, c.opt.Stop.ReleasedAt(c.opt.Name, r.Target.Node), now); err != nil {
		c.reportWaitNotResumed(a, err)
		return
	}
	limit := max(1, c.opt.Guards.MaxInFlightTotal)
	if r.Manual != nil {
		limit = lead.EverySlot
	}
	free, err := c.opt.Slots.Take(ctx, c.opt.Lead.Store(), limit, c.opt.Name, r.ID)
	if err == nil && !free {
		err = &reason.Refusal{Reason: reason.TotalInFlight, Message: "as many runs are in flight over all clusters as guards.maxInFlightTotal allows"}
	}
	if err == nil {
		o := order.Order{Cluster: c.opt.Name, Actor: remediate.SelfActor, Reason: "it waited for " + string(r.Reason)}
		_, err = c.Order(ctx, r.ID, o, "retries", func(r remediate.Run) (remediate.Run, error) {
			if r.Step != remediate.Waiting || !r.Wait.Due {
				return r, &reason.Refusal{Reason: reason.OrderRefused, Message: "the run is not due any more"}
			}
			r.Retry = o.ForRecord()
			return r, nil
		})
	}
	if err != nil {
		c.reportWaitNotResumed(a, err)
	}
}

// reportWaitRefusal emits why a Waiting run does not go on, once for each reason.
func (c *Cluster) reportWaitRefusal(a candidate, g reason.Gate) {
	if c.waitRefused.record(a.key, g.Reason) {
		c.emitRefusal(a, g)
	}
}

func (c *Cluster) reportWaitNotResumed(a candidate, err error) {
	if r, ok := reason.AsRefusal(err); ok { // other errors were reported where they occurred
		c.reportWaitRefusal(a, reason.Gate{Name: "start", Reason: r.Reason, Value: r.Message, Threshold: "still free", Source: "state"})
	}
}

// dueRuns lists the Waiting runs that are due and were not resumed yet, by ID.
func (b *Book) dueRuns() (due []remediate.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(b.runs.byID)) {
		if r := b.runs.byID[id]; r.Step == remediate.Waiting && r.Wait.Due && r.Retry == nil && !b.runs.resuming[id] {
			due = append(due, r)
		}
	}
	return due
}

// candidateForRun is the candidate of a Waiting run.
func (b *Book) candidateForRun(r remediate.Run) candidate {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := candidate{key: "run|" + r.ID, draft: r, node: b.ledger.Node(r.Target.Node)}
	for _, counters := range b.ledger.Counters() {
		if check := b.ledger.Check(counters.ID()); check != nil && r.CheckID != "" && isCheckOf(r, check) {
			a.zoneKey = check.ZoneKey
		}
	}
	return a
}

// beginResume marks a run as being resumed; false if it is already.
func (b *Book) beginResume(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs.resuming[id] {
		return false
	}
	b.runs.resuming[id] = true
	return true
}

func (b *Book) endResume(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs.resuming, id)
	delete(b.runs.reserved, id)
}

// reserveAgain counts a Waiting run as in flight from now on, if the limits allow it, until
// endResume. An error is a *reason.Refusal. // I11, I12
func (b *Book) reserveAgain(a candidate, slots int, releasedAt, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := guard.Facts{
		Manual: a.draft.Manual != nil, ControlPlane: a.draft.ControlPlane, NeedsHost: true, InFlightTotal: slots,
	}
	b.countAll(a, &f, releasedAt, now)
	if g, refused := firstFailing(guard.StartGates(b.opt.Guards, f, now)); refused {
		return reason.RefusalOf(g)
	}
	b.runs.reserved[a.draft.ID] = true
	return nil
}

// stillAsked returns a failing gate if the check of a run would not ask for it now, if the run
// did not exist. A later attempt is justified by the one before. The check is asked once more by
// the run itself, about its fresh target. // I4
func (b *Book) stillAsked(r remediate.Run, now time.Time) []reason.Gate {
	if r.Manual != nil || r.Attempt > 1 || !r.Isolated.IsZero() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.SetRuns(now, slices.DeleteFunc(b.runs.openTargets(), func(o policy.OpenRun) bool { return o.ID == r.ID }))
	defer func() { b.ledger.SetRuns(now, b.runs.openTargets()) }()
	code, source := reason.NotUnhealthy, r.Check
	for _, check := range b.ledger.Acting(now) {
		full := b.ledger.Check(check.ID())
		if full == nil || !isCheckOf(r, full) {
			continue
		}
		for i := range check.Targets {
			t := &check.Targets[i]
			switch {
			case t.Node != r.Target.Node || r.Target.Machine != "" && t.Machine != r.Target.Namespace+"/"+r.Target.Machine:
			case isActionable(full, t) && strategyOf(full, t) == r.Strategy:
				return nil
			case len(t.Refusals) > 0:
				code = t.Refusals[0]
			}
		}
	}
	return []reason.Gate{{Name: "check", Reason: code, Value: "the check does not ask for this action now", Threshold: "still asked for", Source: "check " + source}}
}
