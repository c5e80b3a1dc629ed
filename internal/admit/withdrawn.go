package admit

import (
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Withdrawn implements run.Cluster. It is about who asked, not about the target: a run that has
// switched its host off has itself changed what a check counts. // I4
func (rc *runCluster) Withdrawn(r remediate.Run, f run.Fresh, now time.Time) (remediate.Answer, string) {
	if rc.opt.Stop.Corrupt() != "" { // the order to arm may be among what cannot be read
		return remediate.CannotTell, ""
	}
	if why := rc.ModeForbids(r); why != "" {
		return remediate.Yes, why
	}
	m := f.Machine
	switch {
	case orderExpired(r, now):
		return remediate.Yes, orderTooOld
	case r.Manual != nil:
		return remediate.No, ""
	case !rc.opt.View.View().Synced:
		return remediate.CannotTell, ""
	case m != nil && m.UID == r.Target.MachineUID && m.Paused:
		return remediate.Yes, "the Machine is paused"
	case m != nil && m.UID == r.Target.MachineUID && m.SkipRemediation:
		return remediate.Yes, "the Machine asks not to be remediated"
	case f.Cluster != nil && f.Cluster.Paused:
		return remediate.Yes, "the Cluster is paused"
	case r.Request != nil:
		return rc.requestWithdrawn(r, f, now)
	}
	return cluster.Checks{Model: rc.opt.Model}.Withdrawn(r)
}

// ModeForbids implements run.Cluster.
func (rc *runCluster) ModeForbids(r remediate.Run) string {
	f := guard.Facts{Mode: rc.opt.Mode, Armed: rc.opt.Stop.Record(rc.opt.Name).Armed, Requested: r.Request != nil}
	if r.Manual != nil {
		f.Manual, f.ByAdmin = true, r.Manual.Admin
	}
	switch {
	case guard.ModeAllows(f):
		return ""
	case f.Mode == guard.ModeObserve:
		return "the cluster is in mode observe and not armed"
	}
	return "mode " + f.Mode + " does not allow this run"
}

const orderTooOld = "the order is older than ten minutes and nothing came of it; give it again"

// orderExpired says whether an order to fence by hand is too old, and nothing came of it yet: the
// host was not touched, or the run rests or begins again before the isolation. // I4
func orderExpired(r remediate.Run, now time.Time) bool {
	begins := !r.Intervened || r.Revalidate || r.Step.Idle()
	return begins && isOrderOld(r, now)
}

// isOrderOld says whether a run that has isolated nothing began by an order that is older than orderFresh.
func isOrderOld(r remediate.Run, now time.Time) bool {
	return r.Manual != nil && r.Attempt == 1 && r.Isolated.IsZero() && age(r.Manual.At, now) > orderFresh
}

// requestWithdrawn answers for a run that carries out a request.
func (rc *runCluster) requestWithdrawn(r remediate.Run, f run.Fresh, now time.Time) (remediate.Answer, string) {
	q := f.Request
	switch {
	case r.Request.Kind == policy.MachineRequestKind && f.Machine == nil:
		return remediate.CannotTell, ""
	case r.Request.Kind == policy.MachineRequestKind && (f.Machine.ExternalRemediationRequested || hasRestored(r)):
		return remediate.No, ""
	case r.Request.Kind == policy.MachineRequestKind && f.Machine.Suspended != "":
		return remediate.Yes, f.Machine.Suspended
	case r.Request.Kind == policy.MachineRequestKind:
		return remediate.Yes, "the annotation of the Machine is gone"
	case !f.RequestRead:
		return remediate.CannotTell, ""
	case q != nil && q.Power != nil && !q.Deleting && q.TimedOut.IsZero() && !startTimeOver(r, q, now):
		return remediate.No, ""
	case !restsBeforeIsolation(r) && cluster.Requests{Model: rc.opt.Model}.RequestedAnew(r, now):
		return remediate.No, "" // one that rests ends instead: the new request then has a run of its own
	case q == nil || q.Power == nil:
		return rc.withdrawnByDeletion(r, f, "the request is gone")
	case q.Deleting && q.TimedOut.IsZero():
		return rc.withdrawnByDeletion(r, f, "the request is being deleted")
	}
	return remediate.Yes, "the time of the request is over"
}

// withdrawnByDeletion answers for a run whose request was deleted. Where the run outlives that, its Machine and the
// check that made the request say whether it is still wanted.
func (rc *runCluster) withdrawnByDeletion(r remediate.Run, f run.Fresh, why string) (remediate.Answer, string) {
	m, ofMachine := f.Observation.Machine, r.Target.Machine != ""
	switch outlives := r.OutlivesRequest(f.Observation.Node); {
	case outlives == remediate.No:
		return remediate.Yes, why
	case outlives == remediate.CannotTell, ofMachine && m.Exists == remediate.CannotTell:
		return remediate.CannotTell, ""
	case ofMachine && (m.Exists == remediate.No || m.UID != r.Target.MachineUID || m.Deleting || m.Marked):
		return remediate.Yes, why + ", and the Machine is gone or is being replaced"
	case r.Request.Check == "":
		return remediate.No, ""
	}
	r.CheckID = r.Request.Check
	answer, ended := cluster.Checks{Model: rc.opt.Model}.Withdrawn(r)
	if answer == remediate.Yes {
		ended = why + ", and of its check: " + ended
	}
	return answer, ended
}

// hasRestored says whether a run has come to step 5, which takes the annotation off the Machine
// itself.
func hasRestored(r remediate.Run) bool {
	for _, v := range r.Steps {
		if v.Step == remediate.RestoreNode {
			return true
		}
	}
	return false
}

// startTimeOver says whether the time in which the run of a request must have begun is over, and
// the run has not begun, or has come to rest before the isolation.
func startTimeOver(r remediate.Run, q *policy.Request, now time.Time) bool {
	begun := r.TouchedHost() && !restsBeforeIsolation(r)
	return !begun && q.Power.Timeout > 0 && !q.Created.IsZero() && !now.Before(q.Created.Add(q.Power.Timeout))
}

// restsBeforeIsolation says whether a run has come to rest in its first attempt, before it isolated
// the Node: nothing is lost if it ends.
func restsBeforeIsolation(r remediate.Run) bool {
	return r.Step.Idle() && r.Attempt == 1 && r.Isolated.IsZero()
}
