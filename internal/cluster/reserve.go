package cluster

import (
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// When two candidates have passed all gates, the first one may have used up a limit for the second. So
// the gates that depend on other runs are evaluated again under the lock that then lists the candidate
// as open: a new run, a Waiting run that begins again, or a new object of another remediator. // I11, I12

// mayBegin returns a *reason.Refusal if a candidate has no place under the limits, if somebody else may act on
// its host, or if nobody asks for it any more. slots is the number of slots taken over all clusters. Both locks are held,
// and the caller lists the candidate as open before they are released. // I11, I12, I22
func (c *Model) mayBegin(a Candidate, slots int, releasedAt, now time.Time) error {
	if c.Runs.closed {
		return errBeingRemoved()
	}
	if why := c.Runs.blocks(a.Draft.Target); why != "" { // first: it says which record to give up
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
	defer c.lock()()
	a.Draft = r
	if err := c.mayBegin(a, slots, releasedAt, now); err != nil {
		return err
	}
	c.Runs.byID[r.ID], c.Runs.changed = &r, true
	return nil
}

// ReserveRetry counts a Waiting run as in flight from now on, until end. An error is a *reason.Refusal.
func (c *Model) ReserveRetry(a Candidate, slots int, releasedAt, now time.Time) error {
	defer c.lock()()
	if err := c.mayBegin(a, slots, releasedAt, now); err != nil {
		return err
	}
	c.Runs.reserved[a.Draft.ID] = true
	return nil
}

// Due lists the Waiting runs that are due and were not resumed yet, by ID.
func (rs *Runs) Due() (due []remediate.Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for id, r := range rs.byID {
		if r.Step == remediate.Waiting && r.Wait.Due && r.Retry == nil && !rs.resuming[id] {
			due = append(due, *r)
		}
	}
	slices.SortFunc(due, func(a, b remediate.Run) int { return strings.Compare(a.ID, b.ID) })
	return due
}

// CandidateForRetry is the candidate of a Waiting run.
func (o *Objects) CandidateForRetry(r remediate.Run) Candidate {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := Candidate{Key: "run|" + r.ID, Draft: r, ownRetry: true, Node: o.ledger.Node(r.Target.Node)}
	if check, _ := checkOf(o.ledger, r); check != nil {
		a.zoneKey = check.ZoneKey
	}
	return a
}

// BeginRetry marks a run as being resumed, so that it is not due, and EndRetry ends that.
func (rs *Runs) BeginRetry(id string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.resuming[id] = true
}

func (rs *Runs) EndRetry(id string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.resuming, id)
	delete(rs.reserved, id)
}

// StillAsked returns a failing gate if nobody asks for a Waiting run any more.
func (c *Model) StillAsked(a Candidate, now time.Time) []reason.Gate {
	defer c.lock()()
	return c.askGates(a, now)
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
