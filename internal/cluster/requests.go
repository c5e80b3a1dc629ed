package cluster

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// RequestWithRun is one remediation request, with its newest run, or the open run on its target, or the
// newest that has carried it out; nil if there is none.
type RequestWithRun struct {
	policy.Requested
	Run *remediate.Run
	// holderLost: this instance leads, so it knows every run in the state, and not what the one for which the
	// finalizer was set has done.
	HolderLost bool
	// runOver: run began for a request that asks for nothing any more, or is gone.
	RunOver bool
}

// Requested lists the remediation requests that fenced carries out.
func (c *Model) Requested(now time.Time) []RequestWithRun {
	defer c.lock()()
	requests := c.Objects.ledger.Requested(c.Options.AnnotatedMachines, now)
	if len(requests) == 0 {
		return nil
	}
	index := c.Runs.ofRequests(now)
	list := make([]RequestWithRun, len(requests))
	asking := map[string]bool{}
	for _, q := range requests {
		asking[requestKey(q.Request.Kind, q.Request.UID)] = !request.IsOver(q.Request)
	}
	for i, q := range requests {
		lost := c.Runs.lacksHolder(q.Request.Power, index.own[requestKey(q.Request.Kind, q.Request.UID)])
		r := index.of(&requests[i], lost)
		list[i] = RequestWithRun{Requested: q, Run: r, RunOver: r != nil && r.Request != nil && !asking[requestKey(r.Request.Kind, r.Request.UID)], HolderLost: c.Runs.leads && lost}
	}
	return list
}

func requestKey(kind, uid string) string { return kind + " " + uid }

func isRunOf(r remediate.Run, q *policy.Request) bool {
	return r.Request != nil && r.Request.Kind == q.Kind && r.Request.UID == q.UID
}

func RefOf(q *policy.Request) remediate.Request {
	return remediate.Request{Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, UID: q.UID, OnManagementAPI: q.OnManagementAPI}
}

// IsCarriedOut says whether a run has carried the request out, also if it was not told yet. One
// object is carried out once; an annotation is a new request each time that it is set. // I4
func (q *RequestWithRun) IsCarriedOut() bool {
	return q.Request.Kind != policy.MachineRequestKind && request.IsDone(q.Run)
}

// HasOpenRun says whether a run is open on the target. The request is told about that one.
func (q *RequestWithRun) HasOpenRun() bool { return q.Run != nil && q.Run.Open() }

// IsCarriedOn says whether the open run on the target, which began for a request that is over, goes on for this one: without the finalizer nothing of
// this one is left if it is deleted while the host is off. See RequestedAnew. // I20
func (q *RequestWithRun) IsCarriedOn() bool {
	p := q.Request.Power
	mayHold := q.Request.Kind != policy.MachineRequestKind && !request.IsOver(q.Request) && !p.HasFinalizer && !p.FinalizerElsewhere && !p.Answered()
	asks := q.Target.Action != policy.None && !mayNotAsk(&q.Target)
	return mayHold && asks && q.HasOpenRun() && q.Run.Request != nil && q.RunOver && q.Run.TouchedHost()
}

// MakerOf is the check that made a request; nil if no check of the cluster did.
func (o *Objects) MakerOf(q *policy.Request) *policy.Check {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.MakerOf(q)
}

// isFor says whether the target of a request is that of a run.
func isFor(t *policy.TargetReport, r remediate.Run) bool {
	return t.Machine != "" && t.MachineUID == r.Target.MachineUID || t.Machine == "" && t.Node != "" && t.Node == r.Target.Node
}

// mayNotAsk says whether what a request is, not what its target is now, forbids to carry it out.
func mayNotAsk(t *policy.TargetReport) bool {
	return slices.ContainsFunc(t.Refusals, func(code reason.Code) bool {
		return code == reason.RequestNotTrusted || code == reason.Overlap || code == reason.NodeMismatch || code == reason.NodeNotOwned
	})
}

// NotFor says why a request that was just read is not, or not any more, for the target of its run:
// somebody may have edited its owners or its annotation. // I2, I4
func (o *Objects) NotFor(q *policy.Request, r remediate.Run, now time.Time) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch t := o.ledger.RequestTarget(q, now); {
	case !isFor(&t, r):
		return "the request is for another target now"
	case mayNotAsk(&t):
		return "refused now: " + t.Message
	}
	return ""
}

// RequestedAnew says whether another request that may ask for the target of a run does: the check
// has deleted the first one, and has made a new one meanwhile.
func (c *Model) RequestedAnew(r remediate.Run, now time.Time) bool {
	return slices.ContainsFunc(c.Requested(now), func(q RequestWithRun) bool {
		t := &q.Target
		return isFor(t, r) && q.Request.UID != r.Request.UID && t.Action != policy.None && !mayNotAsk(t)
	})
}

// lacksHolder says whether the run for which the finalizer of a request was set is not in the state, or only as it
// was before its first command. An older finalizer does not name it; then newest, which is nil if there is none, is
// taken for it.
func (rs runs) lacksHolder(p *policy.PowerRequest, newest *remediate.Run) bool {
	if p == nil || !p.HasFinalizer {
		return false
	}
	holder := newest
	if p.HeldFor != "" {
		holder = rs.byID[p.HeldFor]
	}
	return holder == nil || !holder.TouchedHost()
}

// requestRuns finds the run of each request among all runs, which are many.
type requestRuns struct {
	now     time.Time
	open    map[string]*remediate.Run   // by the Node and by the Machine "namespace/name"
	done    map[string][]*remediate.Run // by the same: those that have power-cycled or replaced it
	own     map[string]*remediate.Run   // by the kind and UID of the request: the one that has carried it out, else the newest
	seenEnd map[string]time.Time        // see runs
}

// ofRequests indexes the runs in one pass. Their lock is held.
func (rs runs) ofRequests(now time.Time) requestRuns {
	x := requestRuns{now: now, open: map[string]*remediate.Run{}, done: map[string][]*remediate.Run{}, own: map[string]*remediate.Run{}, seenEnd: rs.seenEnd}
	for _, r := range rs.byID {
		if !r.Open() && r.Request == nil && !request.IsDone(r) {
			continue
		}
		for _, subject := range []string{r.Target.Node, r.Target.MachineKey()} {
			switch {
			case subject == "":
			case r.Open():
				x.open[subject] = r
			case request.IsDone(r):
				x.done[subject] = append(x.done[subject], r)
			}
		}
		if r.Request != nil {
			key := requestKey(r.Request.Kind, r.Request.UID)
			if isAfter(r, x.own[key]) {
				x.own[key] = r
			}
		}
	}
	return x
}

// isAfter says whether a run of a request comes after another one of it, or that is nil. None begins after one that is
// Done. The order of IDs is that of the clocks which made them. // I4
func isAfter(r, other *remediate.Run) bool {
	switch {
	case other == nil || r.Open():
		return true
	case other.Open() || request.IsDone(r) != request.IsDone(other):
		return request.IsDone(r) && !other.Open()
	}
	return r.ID > other.ID
}

// of returns the open run on the target of a request, else the last run of the request, else one that has
// carried it out, whoever ordered that run: nothing is left to do. nil: none of these. lost: nobody knows what the
// run has done for which its finalizer was set.
func (x requestRuns) of(q *policy.Requested, lost bool) *remediate.Run {
	if r := x.open[q.Target.Subject()]; r != nil {
		return r
	}
	own := x.own[requestKey(q.Request.Kind, q.Request.UID)]
	if request.IsDone(own) && !x.isSince(own, q.Request.Power, lost) { // the lost run may have begun after it
		own = nil
	}
	if own == nil || !own.Open() && !request.IsDone(own) {
		if done := x.doneFor(q, lost); done != nil {
			return done
		}
	}
	return own
}

// isSince says whether a run has ended on the same machine since the lost run of a request, if one is lost: this instance has seen it
// end. No clock says that: the one that wrote the end, or this one now, may be wrong. // I20
func (x requestRuns) isSince(done *remediate.Run, p *policy.PowerRequest, lost bool) bool {
	return !lost || !x.seenEnd[done.ID].IsZero() && !IsOnOtherMachine(p, done.Target)
}

// IsOnOtherMachine says whether a target is on another machine than the one that the run of a request's finalizer may have switched off. What
// becomes of it says nothing about that one. // I20
func IsOnOtherMachine(p *policy.PowerRequest, t remediate.Target) bool {
	return bmc.UsableUUID(p.HeldMachine) && bmc.UsableUUID(t.SystemUUID) && !bmc.UUIDsMatch(p.HeldMachine, t.SystemUUID)
}

// doneFor returns the newest run that has power-cycled or replaced the target of a request since the request was
// made, or nil. An end to come was written by a clock that was ahead, and says nothing; nor does one by a clock that
// is known to have been wrong. Nor does a run that has let the Machine before be replaced.
func (x requestRuns) doneFor(q *policy.Requested, lost bool) (newest *remediate.Run) {
	made := q.Request.Created
	for _, r := range x.done[q.Target.Subject()] {
		answers := !r.WrongClock && !made.IsZero() && r.Ended.After(made) && !r.Ended.After(x.now) && !isOfEarlierMachine(r, q.Target.MachineUID)
		if answers && x.isSince(r, q.Request.Power, lost) && (newest == nil || r.ID > newest.ID) {
			newest = r
		}
	}
	return newest
}

// isOfEarlierMachine says whether a run has ended with the replacement of another Machine of that name.
func isOfEarlierMachine(r *remediate.Run, uid string) bool {
	return r.Step == remediate.Reprovisioned && uid != "" && r.Target.MachineUID != "" && r.Target.MachineUID != uid
}
