package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
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
	if g, refused := FirstFailing(guard.StartGates(c.Options.Limits.Now().Guards, f, now)); refused {
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

// Does somebody still ask for this run? A check, a request or a person asks. The question has three forms:
// by the view, before a run begins or begins again (here); by a fresh look, before each Off; and
// only about who asked, while a run is open, because a run that has switched its host off has itself changed
// what a check counts (both in admit). // I4

// askGates returns a failing gate if nobody asks for the action of a candidate any more, by the view as it is
// now: other runs have begun, and its limit, a budget or another check may forbid it. A Waiting run is
// evaluated as if it did not exist. A later attempt is justified by the one before, and only the limit of its
// check must allow it. What a person ordered needs nobody else. Both locks are held. // I4, I11
func (c *Model) askGates(a Candidate, now time.Time) []reason.Gate {
	r := a.Draft
	if r.Manual != nil || a.Check == nil && !a.ownRetry {
		return nil
	}
	c.applyOpenRuns(now)
	switch {
	case !a.ownRetry:
	case r.Attempt > 1 || !r.Isolated.IsZero():
		return limitGates(c.Objects.ledger, r)
	default:
		open := c.Runs.openTargets()
		c.Objects.ledger.SetRuns(now, slices.DeleteFunc(slices.Clone(open), func(o policy.OpenRun) bool { return o.ID == r.ID }))
		defer func() { c.Objects.ledger.SetRuns(now, open) }()
	}
	if r.Request != nil {
		return requestGates(c.Objects.ledger, c.Options.AnnotatedMachines, r, now)
	}
	return checkGates(c.Objects.ledger, a, now)
}

// checkGates returns a failing gate if the check of a candidate, as it is now, does not ask for its action.
func checkGates(l *policy.Ledger, a Candidate, now time.Time) []reason.Gate {
	check, _ := checkOf(l, a.Draft)
	if check == nil {
		return notAsked(a.Draft, reason.NotUnhealthy, "the check is gone")
	}
	code := reason.NotUnhealthy
	targets := l.ActingOn(check.ID(), SubjectOf(a.Draft.Target), now)
	for i := range targets {
		t := &targets[i]
		switch {
		case !a.isTarget(t):
		case a.IsAskedFor(check, t):
			return nil
		case len(t.Refusals) > 0:
			code = t.Refusals[0]
		}
	}
	return notAsked(a.Draft, code, "the check does not ask for this action now")
}

// limitGates returns the limit of the check of a run, which counts the target of the run. A limit that is not
// known is closed. A request has none of its own. // I11
func limitGates(l *policy.Ledger, r remediate.Run) []reason.Gate {
	if r.Request != nil {
		return nil
	}
	switch check, counters := checkOf(l, r); {
	case check == nil:
		return notAsked(r, reason.NotUnhealthy, "the check is gone")
	case counters.State != policy.StateActive:
		return notAsked(r, reason.NotUnhealthy, "the limit of the check is not known: "+counters.Message)
	default:
		return []reason.Gate{counters.LimitGate()}
	}
}

// requestGates returns a failing gate if the request of a run does not ask for it now.
func requestGates(l *policy.Ledger, annotated bool, r remediate.Run, now time.Time) []reason.Gate {
	code, value := reason.NotUnhealthy, "the request is gone"
	for _, q := range l.Requested(annotated, now) {
		switch t := &q.Target; {
		case !isRunOf(r, q.Request):
		case t.Acts() && isFor(t, r):
			return nil
		case len(t.Refusals) > 0:
			code, value = t.Refusals[0], t.Message
		default:
			value = t.Message
		}
	}
	return []reason.Gate{{Name: "request", Reason: code, Value: value, Threshold: "still asked for", Source: r.Request.Kind + " " + r.Check}}
}

func notAsked(r remediate.Run, code reason.Code, value string) []reason.Gate {
	return []reason.Gate{{Name: "check", Reason: code, Value: value, Threshold: "still asked for", Source: "check " + r.Check}}
}

// isTarget says whether a target of a check is that of a candidate: the same Node, and the same Machine. A
// Machine that has claimed the Node since makes another target of it for a new run; a Waiting run begins, finds
// that by its fresh look, and ends.
func (a *Candidate) isTarget(t *policy.TargetReport) bool {
	of := &a.Draft.Target
	if of.Machine == "" {
		return t.Node == of.Node && (t.Machine == "" || a.ownRetry)
	}
	return t.Node == of.Node && t.Machine == of.MachineKey() && t.MachineUID == of.MachineUID
}

// IsAskedFor says whether a check asks for the action of a candidate on a target: one that fenced carries out, or
// that another remediator is asked to do, by an object from the same template.
func (a *Candidate) IsAskedFor(check *policy.Check, t *policy.TargetReport) bool {
	if a.AsksOther {
		return a.IsSameAction(check, t) && t.Acts()
	}
	return a.IsSameAction(check, t) && IsActionable(check, t)
}

// IsSameAction says the same, whether anything refuses the action or not.
func (a *Candidate) IsSameAction(check *policy.Check, t *policy.TargetReport) bool {
	if a.AsksOther {
		return check.HandsOver(t) && *cmp.Or(t.Template, check.Template) == *a.Template
	}
	return strategyOf(check, t) == a.Draft.Strategy
}

// IsActionable says whether the check asks for an action that fenced carries out. A request
// that the in-cluster controller has already written on the Machine does not prevent a power
// cycle: fenced carries out that request.
func IsActionable(check *policy.Check, t *policy.TargetReport) bool {
	if strategyOf(check, t) == "" {
		return false
	}
	for _, r := range t.Refusals {
		if r != reason.AlreadyRequested || t.Action != policy.PowerCycle {
			return false
		}
	}
	return true
}

// checkOf returns the check of a run as it is now, and its counters; nil if it is gone.
func checkOf(l *policy.Ledger, r remediate.Run) (*policy.Check, policy.CheckReport) {
	for _, counters := range l.Counters() {
		if check := l.Check(counters.ID()); check != nil && withoutFile(CheckID(check.ID())) == withoutFile(r.CheckID) {
			return check, counters
		}
	}
	return nil, policy.CheckReport{}
}

// Evaluation is what policy needs to evaluate the target of one run again: the check as it
// is now, and its surroundings.
type Evaluation struct {
	Check      *policy.Check // nil: it is gone
	Context    policy.CheckContext
	Requests   []*policy.Request
	Doubt      policy.Doubt // why the fresh Machine and Node may not belong together
	NotOwned   policy.NotOwned
	NewMachine string // the Machine that has claimed the Node since; "" if the run has a Machine
}

// EvaluationOf finds the run's check and what it needs to evaluate the fresh Machine m and
// Node n, each of which may be nil. ok is false before the view is complete: after a start
// the ledger knows only the checks from files. It is also false while the check may be in a file that was refused.
func (o *Objects) EvaluationOf(r remediate.Run, m *policy.Machine, n *policy.Node) (j Evaluation, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.complete {
		return Evaluation{}, false
	}
	j.Doubt, j.NotOwned = o.ledger.Doubt(m, n), o.ledger.NotOwned(m, n)
	if m := o.ledger.MachineOf(r.Target.Node); m != nil && r.Target.Machine == "" {
		j.NewMachine = m.Key()
	}
	check, _ := checkOf(o.ledger, r)
	if check == nil && r.Request == nil && o.filesRefused != "" { // it may be in a file that was not read
		return Evaluation{}, false
	}
	if check != nil {
		t := r.Target
		j.Check, j.Context = check, o.ledger.CheckContext(check)
		j.Requests = o.ledger.Requests(policy.TargetNames{Namespace: t.Namespace, Machine: t.Machine, MachineUID: t.MachineUID, Node: t.Node}, m, n)
	}
	return j, true
}

// Withdrawn answers for a run of a check.
func (o *Objects) Withdrawn(r remediate.Run) (remediate.Answer, string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.complete {
		return remediate.CannotTell, ""
	}
	switch check, counters := checkOf(o.ledger, r); {
	case check == nil && o.filesRefused != "": // it may be in a file that was not read
		return remediate.CannotTell, ""
	case check == nil:
		return remediate.Yes, "the check is gone"
	case counters.State == policy.StateInvalid: // it may only be unreadable for now
		return remediate.CannotTell, ""
	case counters.State != policy.StateActive:
		return remediate.Yes, counters.Message
	case len(check.PauseRequests) > 0:
		return remediate.Yes, "the check is paused by its spec.pauseRequests"
	}
	return remediate.No, ""
}
