package admit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// When two candidates have passed all gates, the first one may have used up a limit for the second. So
// the gates that depend on other runs are evaluated again under the lock that then lists the candidate
// as open: a new run, a Waiting run that begins again, or a new object of another remediator. // I11, I12

// mayBegin returns a *reason.Refusal if a candidate has no place under the limits, if somebody else may act on
// its host, or if nobody asks for it any more. slots is the number of slots taken over all clusters. b.mu is held,
// and the caller lists the candidate as open before it is released. // I11, I12, I22
func (b *Book) mayBegin(a candidate, slots int, releasedAt, now time.Time) error {
	if b.closed {
		return errRemoved()
	}
	if g, refused := firstFailing(b.askGates(a, now)); refused {
		return reason.RefusalOf(g)
	}
	if why := b.runs.blocks(a.draft.Target); why != "" {
		return &reason.Refusal{Reason: reason.AlreadyRequested, Message: why}
	}
	f := a.facts()
	f.InFlightTotal = slots
	b.countAll(a, &f, releasedAt, now)
	if g, refused := firstFailing(guard.StartGates(b.opt.Limits.Guards(), f, now)); refused {
		return reason.RefusalOf(g)
	}
	return nil
}

// facts are the facts for the guards that only the candidate itself tells.
func (a candidate) facts() guard.Facts {
	r := &a.draft
	return guard.Facts{
		Manual: r.Manual != nil, ByAdmin: r.Manual != nil && r.Manual.Admin, Requested: r.Request != nil, OwnRetry: a.ownRetry, Protected: a.protected,
		ControlPlane: r.ControlPlane, NeedsHost: r.Strategy == remediate.PowerCycle, AsksOther: a.asksOther,
	}
}

// reserve lists a new run as open. An error is a *reason.Refusal.
func (b *Book) reserve(a candidate, r remediate.Run, slots int, releasedAt, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.draft = r
	if err := b.mayBegin(a, slots, releasedAt, now); err != nil {
		return err
	}
	b.runs.byID[r.ID], b.runsChanged = &r, true
	return nil
}

// reserve counts a Waiting run as in flight from now on, until end. An error is a *reason.Refusal.
func (b waitingRuns) reserve(a candidate, slots int, releasedAt, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.mayBegin(a, slots, releasedAt, now); err != nil {
		return err
	}
	b.runs.reserved[a.draft.ID] = true
	return nil
}

// reserve puts a new object of a record into the Book. o.Mark lacks the ID of the record. From then on nobody
// else acts on the target. An error is a *reason.Refusal. // I22
func (b handoverBook) reserve(a candidate, o escalate.Object, slots int, releasedAt, now time.Time) (r escalate.Record, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r = b.runs.recordOf(a, now)
	a.draft.ID = r.ID
	if err := b.mayBegin(a, slots, releasedAt, now); err != nil {
		return r, err
	}
	if r.Trim(now); len(r.Objects) >= escalate.MaxObjects {
		return r, &reason.Refusal{Reason: reason.FencesPerDay, Message: fmt.Sprintf("%d objects were made for it since %s; give that up with fencectl abort %s --as-is --reason WHY",
			len(r.Objects), r.Started.Format(time.RFC3339), r.ID)}
	}
	o.Mark, o.Made = o.Mark+r.ID, now.UTC()
	r.Objects, r.Idle, r.Labels, r.Names = append(r.Objects, o), time.Time{}, a.draft.NodeLabels, a.draft.NodeNames
	b.runs.asked[r.ID], b.runsChanged, b.runs.reserved[r.ID] = r, true, true
	return r, nil
}

// recordOf is the record of a target: the one whose escalation goes on, else a new one.
func (rs runs) recordOf(a candidate, now time.Time) escalate.Record {
	mark := a.check.Mark()
	for _, r := range rs.asked {
		if r.Ended.IsZero() && r.Check == mark && r.Target.Overlaps(a.draft.Target) {
			r.Target, r.ControlPlane = a.draft.Target, a.draft.ControlPlane
			return r
		}
	}
	return escalate.Record{ID: newRunID(now), Check: mark, Target: a.draft.Target, ControlPlane: a.draft.ControlPlane, Started: now.UTC()}
}

// reserved ends the time after reserve in which a record takes its slot itself. // I11
func (b handoverBook) reserved(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs.reserved, id)
}

// waitingRuns is the part of a Book about Waiting runs.
type waitingRuns struct{ *Book }

// due lists the Waiting runs that are due and were not resumed yet, by ID.
func (b waitingRuns) due() (due []remediate.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, r := range b.runs.byID {
		if r.Step == remediate.Waiting && r.Wait.Due && r.Retry == nil && !b.runs.resuming[id] {
			due = append(due, *r)
		}
	}
	slices.SortFunc(due, func(a, b remediate.Run) int { return strings.Compare(a.ID, b.ID) })
	return due
}

// candidate is the candidate of a Waiting run.
func (b waitingRuns) candidate(r remediate.Run) candidate {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := candidate{key: "run|" + r.ID, draft: r, ownRetry: true, node: b.ledger.Node(r.Target.Node)}
	if check, _ := checkOf(b.ledger, r); check != nil {
		a.zoneKey = check.ZoneKey
	}
	return a
}

// begin marks a run as being resumed, so that it is not due.
func (b waitingRuns) begin(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs.resuming[id] = true
}

func (b waitingRuns) end(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs.resuming, id)
	delete(b.runs.reserved, id)
}

// stillAsked returns a failing gate if nobody asks for a Waiting run any more.
func (b waitingRuns) stillAsked(a candidate, now time.Time) []reason.Gate {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.askGates(a, now)
}

// Door is where runs, and requests for other remediators, begin in one cluster. A reload closes it
// before it removes the cluster.
type Door struct{ b *Book }

// Close lets no run or request begin in the cluster any more, and no leadership, in which open runs would go
// on. If runs are open, it changes nothing, and returns them. A run is open from the moment at which
// it reserves its place, so none is between the two. // I11, I19
func (d Door) Close() (open []remediate.Run) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	open = d.b.runs.open()
	d.b.closed = len(open) == 0
	return open
}

// Open lets runs begin again.
func (d Door) Open() {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	d.b.closed = false
}

// errRemoved refuses what would begin while the door is closed.
func errRemoved() error {
	return &reason.Refusal{Reason: reason.NotOwner, Message: "the cluster is being removed from the configuration of this instance"}
}

// BeginLeadership sets the runs to those in the store. From now on the Book of this
// instance is newer than the store, until EndLeadership. It refuses while the door is
// closed. // I19
func (d Door) BeginLeadership(all []remediate.Run) error {
	mine := byID(d.b.RunsOfCluster(all))
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if d.b.closed {
		return errRemoved()
	}
	d.b.leads = true
	d.b.runs.byID, d.b.runs.seenEnd, d.b.runsChanged = mine, map[string]bool{}, true
	return nil
}

// firstFailing returns the first gate that is closed.
func firstFailing(gates []reason.Gate) (reason.Gate, bool) {
	for _, g := range gates {
		if !g.Pass {
			return g, true
		}
	}
	return reason.Gate{}, false
}
