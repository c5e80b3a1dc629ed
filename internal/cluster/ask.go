package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Does somebody still ask for this run? A check, a request or a person asks. The question has three forms:
// by the view, before a run begins or begins again (here); by a fresh look, before each Off (justify.go); and
// only about who asked, while a run is open, because a run that has switched its host off has itself changed
// what a check counts (withdrawn.go). // I4

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

// checkOf returns the check of a run as it is now, and its counters; nil if it is gone. Records without a
// CheckID are from a version that knew only the checks of OpenShift.
func checkOf(l *policy.Ledger, r remediate.Run) (*policy.Check, policy.CheckReport) {
	for _, counters := range l.Counters() {
		check := l.Check(counters.ID())
		switch {
		case check == nil:
		case r.CheckID == "" && check.APIVersion == policy.OpenShiftMachineAPI && check.Key() == r.Check,
			r.CheckID != "" && CheckID(check.ID()) == r.CheckID:
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
