package admit

import (
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// requestRuns finds the run of each request among all runs, which are many.
type requestRuns struct {
	now        time.Time
	open, done map[string]*remediate.Run // by the Node and by the Machine "namespace/name"
	own        map[string]*remediate.Run // the newest, by the kind and UID of the request
}

// ofRequests indexes the runs in one pass. The lock of the Book is held.
func (rs runs) ofRequests(now time.Time) requestRuns {
	x := requestRuns{now: now, open: map[string]*remediate.Run{}, done: map[string]*remediate.Run{}, own: map[string]*remediate.Run{}}
	for _, r := range rs.byID {
		if !r.Open() && r.Request == nil && !request.IsDone(r) {
			continue
		}
		for _, subject := range []string{r.Target.Node, r.Target.MachineKey()} {
			switch {
			case subject == "":
			case r.Open():
				x.open[subject] = r
			case request.IsDone(r) && (x.done[subject] == nil || r.Ended.After(x.done[subject].Ended)):
				x.done[subject] = r
			}
		}
		if r.Request != nil {
			key := requestKey(r.Request.Kind, r.Request.UID)
			if newest := x.own[key]; newest == nil || r.Open() || !newest.Open() && r.ID > newest.ID {
				x.own[key] = r
			}
		}
	}
	return x
}

// of returns the open run on the target of a request, else the newest run of the request, else
// one that has power-cycled or replaced the target since the request was made: whoever ordered
// that run, nothing is left to do. An end to come was written by a clock that was ahead, and says
// nothing. Nor does a run that has let the Machine before be replaced. nil: none of these.
func (x requestRuns) of(q *policy.Requested) *remediate.Run {
	subject := q.Target.Subject()
	if r := x.open[subject]; r != nil {
		return r
	}
	own, done := x.own[requestKey(q.Request.Kind, q.Request.UID)], x.done[subject]
	answered := done != nil && !isOfEarlierMachine(done, q.Target.MachineUID) && !q.Request.Created.IsZero() && done.Ended.After(q.Request.Created) && !done.Ended.After(x.now)
	if answered && (own == nil || !own.Open() && !request.IsDone(own)) {
		return done
	}
	return own
}

// isOfEarlierMachine says whether a run has ended with the replacement of another Machine of that name.
func isOfEarlierMachine(r *remediate.Run, uid string) bool {
	return r.Step == remediate.Reprovisioned && uid != "" && r.Target.MachineUID != "" && r.Target.MachineUID != uid
}
