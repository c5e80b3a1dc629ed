package admit

import (
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// requestRuns finds the run of each request among all runs, which are many.
type requestRuns struct {
	now     time.Time
	open    map[string]*remediate.Run   // by the Node and by the Machine "namespace/name"
	done    map[string][]*remediate.Run // by the same: those that have power-cycled or replaced it
	own     map[string]*remediate.Run   // by the kind and UID of the request: the one that has carried it out, else the newest
	seenEnd map[string]bool             // see runs
}

// ofRequests indexes the runs in one pass. The lock of the Book is held.
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
	if request.IsDone(own) && !x.isSince(own, lost) { // the lost run may have begun after it
		own = nil
	}
	if own == nil || !own.Open() && !request.IsDone(own) {
		if done := x.doneFor(q, lost); done != nil {
			return done
		}
	}
	return own
}

// isSince says whether a run has ended since the lost run of a request, if one is lost: this instance has seen it
// end. No clock says that: the one that wrote the end, or this one now, may be wrong. // I20
func (x requestRuns) isSince(done *remediate.Run, lost bool) bool { return !lost || x.seenEnd[done.ID] }

// doneFor returns the newest run that has power-cycled or replaced the target of a request since the request was
// made, or nil. An end to come was written by a clock that was ahead, and says nothing; nor does one by a clock that
// is known to have been wrong. Nor does a run that has let the Machine before be replaced.
func (x requestRuns) doneFor(q *policy.Requested, lost bool) (newest *remediate.Run) {
	made := q.Request.Created
	for _, r := range x.done[q.Target.Subject()] {
		answers := !r.WrongClock && !made.IsZero() && r.Ended.After(made) && !r.Ended.After(x.now) && !isOfEarlierMachine(r, q.Target.MachineUID)
		if answers && x.isSince(r, lost) && (newest == nil || r.ID > newest.ID) {
			newest = r
		}
	}
	return newest
}

// isOfEarlierMachine says whether a run has ended with the replacement of another Machine of that name.
func isOfEarlierMachine(r *remediate.Run, uid string) bool {
	return r.Step == remediate.Reprovisioned && uid != "" && r.Target.MachineUID != "" && r.Target.MachineUID != uid
}
