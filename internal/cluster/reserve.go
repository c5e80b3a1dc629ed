package cluster

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
func (c *Model) mayBegin(a Candidate, slots int, releasedAt, now time.Time) error {
	if c.closed {
		return errRemoved()
	}
	if why := c.runs.blocks(a.Draft.Target); why != "" { // first: it says which record to give up
		return &reason.Refusal{Reason: reason.AlreadyRequested, Message: why}
	}
	if g, refused := FirstFailing(c.askGates(a, now)); refused {
		return reason.RefusalOf(g)
	}
	f := a.Facts()
	f.InFlightTotal = slots
	c.countAll(a, &f, releasedAt, now)
	if g, refused := FirstFailing(guard.StartGates(c.Options.Limits.Guards(), f, now)); refused {
		return reason.RefusalOf(g)
	}
	return nil
}

// Facts are the facts for the guards that only the candidate itself tells.
func (a Candidate) Facts() guard.Facts {
	r := &a.Draft
	return guard.Facts{
		Manual: r.Manual != nil, ByAdmin: r.Manual != nil && r.Manual.Admin, Requested: r.Request != nil, OwnRetry: a.ownRetry, Protected: a.Protected,
		ControlPlane: r.ControlPlane, NeedsHost: r.Strategy == remediate.PowerCycle, AsksOther: a.AsksOther,
	}
}

// Reserve lists a new run as open. An error is a *reason.Refusal.
func (c *Model) Reserve(a Candidate, r remediate.Run, slots int, releasedAt, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.Draft = r
	if err := c.mayBegin(a, slots, releasedAt, now); err != nil {
		return err
	}
	c.runs.byID[r.ID], c.runsChanged = &r, true
	return nil
}

// Reserve counts a Waiting run as in flight from now on, until end. An error is a *reason.Refusal.
func (c WaitingRuns) Reserve(a Candidate, slots int, releasedAt, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mayBegin(a, slots, releasedAt, now); err != nil {
		return err
	}
	c.runs.reserved[a.Draft.ID] = true
	return nil
}

// Reserve puts a new object of a record into the Model. o.Mark lacks the ID of the record. From then on nobody
// else acts on the target. An error is a *reason.Refusal. // I22
func (c Records) Reserve(a Candidate, o escalate.Object, slots int, releasedAt, now time.Time) (r escalate.Record, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r = c.runs.recordOf(a, now)
	a.Draft.ID = r.ID
	if err := c.mayBegin(a, slots, releasedAt, now); err != nil {
		return r, err
	}
	if r.Trim(now); len(r.Objects) >= escalate.MaxObjects {
		return r, &reason.Refusal{Reason: reason.FencesPerDay, Message: fmt.Sprintf("%d objects were made for it since %s; give that up with fencectl abort %s --as-is --reason WHY",
			len(r.Objects), r.Started.Format(time.RFC3339), r.ID)}
	}
	o.Mark, o.Made = o.Mark+r.ID, now.UTC()
	r.Objects, r.Idle, r.Labels, r.Names = append(r.Objects, o), time.Time{}, a.Draft.NodeLabels, a.Draft.NodeNames
	c.runs.asked[r.ID], c.runsChanged, c.runs.reserved[r.ID] = r, true, true
	return r, nil
}

// recordOf is the record of a target: the one whose escalation goes on, else a new one.
func (rs runs) recordOf(a Candidate, now time.Time) escalate.Record {
	mark := a.Check.Mark()
	for _, r := range rs.asked {
		if r.Ended.IsZero() && r.Check == mark && r.Target.Overlaps(a.Draft.Target) {
			r.Target, r.ControlPlane, r.TakesNoTurn = a.Draft.Target, a.Draft.ControlPlane, a.Draft.TakesNoTurn
			return r
		}
	}
	return escalate.Record{ID: NewRunID(now), Check: mark, Target: a.Draft.Target, ControlPlane: a.Draft.ControlPlane, TakesNoTurn: a.Draft.TakesNoTurn,
		Started: now.UTC()}
}

// Reserved ends the time after reserve in which a record takes its slot itself. // I11
func (c Records) Reserved(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs.reserved, id)
}

// WaitingRuns is the part of a Model about Waiting runs.
type WaitingRuns struct{ *Model }

// Due lists the Waiting runs that are due and were not resumed yet, by ID.
func (c WaitingRuns) Due() (due []remediate.Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.runs.byID {
		if r.Step == remediate.Waiting && r.Wait.Due && r.Retry == nil && !c.runs.resuming[id] {
			due = append(due, *r)
		}
	}
	slices.SortFunc(due, func(a, b remediate.Run) int { return strings.Compare(a.ID, b.ID) })
	return due
}

// Candidate is the candidate of a Waiting run.
func (c WaitingRuns) Candidate(r remediate.Run) Candidate {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := Candidate{Key: "run|" + r.ID, Draft: r, ownRetry: true, Node: c.ledger.Node(r.Target.Node)}
	if check, _ := checkOf(c.ledger, r); check != nil {
		a.zoneKey = check.ZoneKey
	}
	return a
}

// Begin marks a run as being resumed, so that it is not due.
func (c WaitingRuns) Begin(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs.resuming[id] = true
}

func (c WaitingRuns) End(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs.resuming, id)
	delete(c.runs.reserved, id)
}

// StillAsked returns a failing gate if nobody asks for a Waiting run any more.
func (c WaitingRuns) StillAsked(a Candidate, now time.Time) []reason.Gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.askGates(a, now)
}

// AdmissionSwitch is where runs, and requests for other remediators, begin in one cluster. A reload closes it
// before it removes the cluster.
type AdmissionSwitch struct{ Model *Model }

// Close lets no run or request begin in the cluster any more, and no leadership, in which open runs would go
// on. If runs are open, it changes nothing, and returns them. A run is open from the moment at which
// it reserves its place, so none is between the two. // I11, I19
func (d AdmissionSwitch) Close() (open []remediate.Run) {
	d.Model.mu.Lock()
	defer d.Model.mu.Unlock()
	open = d.Model.runs.open()
	d.Model.closed = len(open) == 0
	return open
}

// Open lets runs begin again.
func (d AdmissionSwitch) Open() {
	d.Model.mu.Lock()
	defer d.Model.mu.Unlock()
	d.Model.closed = false
}

// errRemoved refuses what would begin while the AdmissionSwitch is closed.
func errRemoved() error {
	return &reason.Refusal{Reason: reason.NotOwner, Message: "the cluster is being removed from the configuration of this instance"}
}

// BeginLeadership sets the runs to those in the store. From now on the Model of this
// instance is newer than the store, until EndLeadership. It refuses while it is closed. // I19
func (d AdmissionSwitch) BeginLeadership(all []remediate.Run) error {
	mine := byID(d.Model.RunsOfCluster(all))
	d.Model.mu.Lock()
	defer d.Model.mu.Unlock()
	if d.Model.closed {
		return errRemoved()
	}
	d.Model.leads = true
	d.Model.runs.byID, d.Model.runs.seenEnd, d.Model.runsChanged = mine, map[string]bool{}, true
	return nil
}

// FirstFailing returns the first gate that is closed.
func FirstFailing(gates []reason.Gate) (reason.Gate, bool) {
	for _, g := range gates {
		if !g.Pass {
			return g, true
		}
	}
	return reason.Gate{}, false
}
