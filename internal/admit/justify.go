package admit

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// runCluster implements run.Cluster: it is the cluster that the runs see.
type runCluster struct {
	*Freshness // its Clock
	opt        Options
	probes     *probes
	recorder   recorder
	saves      saves
	wake       func()
}

// Wake implements run.Cluster.
func (rc *runCluster) Wake() { rc.wake() }

// Quorum implements run.Cluster.
func (rc *runCluster) Quorum(r remediate.Run, f run.Fresh) (reason.Code, string) {
	return rc.probes.quorum(r, f)
}

// RenamedTo implements run.Cluster.
func (rc *runCluster) RenamedTo(r remediate.Run) (node string, unseen bool) {
	if !rc.View().Synced {
		return "", true
	}
	current := rc.IsCurrent() // I16
	node, unseen = rc.opt.Model.Objects.RenamedTo(r)
	return node, unseen || !current
}

// Names implements run.Cluster: the names of the record, and what a look or the view adds: the Node that
// the Machine has got since, and the Machine that has got the Node. // I23
func (rc *runCluster) Names(t remediate.Target, f run.Fresh) []string {
	names := t.Names()
	if f.Node != nil {
		names = append(names, f.Node.Name)
	}
	if f.Machine != nil {
		names = append(names, f.Machine.NodeName)
	}
	names = append(names, rc.opt.Model.Objects.NamesSince(t)...)
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// releasedAt is when a person last released the host of a target.
func (rc *runCluster) releasedAt(t remediate.Target, f run.Fresh) time.Time {
	return rc.opt.Stop.ReleasedAt(rc.opt.Name, rc.Names(t, f)...)
}

// Justified implements run.Cluster: it evaluates the fresh objects by the rules of the run's
// check. A person's order needs no check. // I4
func (rc *runCluster) Justified(r remediate.Run, f run.Fresh, observed remediate.Observation, now time.Time) (remediate.Answer, string) {
	n, ordered := observed.Node, r.Manual != nil && r.Attempt == 1 && !r.Revalidate && r.Isolated.IsZero()
	switch {
	case isOrderOld(r, now): // a run that has begun to switch needs this only until a command has an effect; it may come from a backup
		return remediate.No, orderTooOld
	case ordered && n.Ready == remediate.Yes && n.BootID != "" && r.Target.BootID != "" && n.BootID != r.Target.BootID: // the record is one of an old backup, or somebody has switched the host on
		return remediate.No, "the host has booted since the order was given, and its Node is Ready; give the order again"
	case r.Manual != nil:
		return remediate.Yes, ""
	}
	return rc.askedFresh(cluster.Candidate{Draft: r}, f, observed, now)
}

// askedFresh answers whether a check or a request asks for the action of a candidate, by the fresh objects of
// its target: one that fenced carries out, or that another remediator is asked to do. In an old view what asks may have gone. // I4, I16
func (rc *runCluster) askedFresh(a cluster.Candidate, f run.Fresh, observed remediate.Observation, now time.Time) (remediate.Answer, string) {
	current := rc.IsCurrent()
	answer, why := rc.askedByView(a, f, observed, now)
	if answer == remediate.Yes && !current {
		return remediate.CannotTell, ""
	}
	return answer, why
}

// askedByView is askedFresh, however old the view is that shows who asks.
func (rc *runCluster) askedByView(a cluster.Candidate, f run.Fresh, observed remediate.Observation, now time.Time) (remediate.Answer, string) {
	r, t := a.Draft, a.Draft.Target
	switch {
	case t.Machine != "" && observed.Machine.Exists == remediate.CannotTell, t.Node != "" && observed.Node.Exists == remediate.CannotTell:
		return remediate.CannotTell, ""
	case t.Machine != "" && (f.Machine == nil || f.Machine.UID != t.MachineUID):
		return remediate.No, "the Machine is gone or was replaced"
	case t.Machine == "" && f.Node == nil:
		return remediate.No, "the Node is gone"
	}
	f.Lease = rc.probes.leases.note(t.Node, observed.Lease, observed.At, now)
	if r.Request != nil {
		return rc.requestJustified(r, f, now)
	}
	check, found, answer, why := rc.evaluateFresh(r, f, observed, now)
	switch {
	case answer != remediate.Yes:
		return answer, why
	case !a.IsSameAction(check, &found):
		return remediate.No, "the check asks for something else now"
	case !a.IsAskedFor(check, &found):
		return remediate.No, "refused now: " + reason.Join(found.Refusals)
	}
	return remediate.Yes, ""
}

// requestJustified evaluates the fresh objects of a run by its request. Whether the time for the
// start is over, Withdrawn says. // I4
func (rc *runCluster) requestJustified(r remediate.Run, f run.Fresh, now time.Time) (remediate.Answer, string) {
	var q *policy.Request
	switch {
	case r.Request.Kind == policy.MachineRequestKind && f.Machine == nil:
		return remediate.No, "the Machine is gone"
	case r.Request.Kind == policy.MachineRequestKind && !f.Machine.ExternalRemediationRequested:
		return remediate.No, "the annotation of the Machine is gone"
	case r.Request.Kind == policy.MachineRequestKind:
		q = policy.AnnotatedRequest(f.Machine)
	case !f.RequestRead:
		return remediate.CannotTell, ""
	case f.Request == nil || f.Request.Power == nil:
		return remediate.No, "the request is gone"
	default:
		q = f.Request
	}
	asked, power := *q, *q.Power
	power.Timeout = 0
	asked.Power = &power
	j, seen := cluster.Evaluation{}, rc.View().Synced
	if seen {
		j, seen = rc.opt.Model.Objects.EvaluationOf(r, f.Machine, f.Node)
	}
	switch {
	case !seen:
		return remediate.CannotTell, ""
	case j.NewMachine != "":
		return remediate.No, "Machine " + j.NewMachine + " has claimed the Node since"
	}
	if why := rc.opt.Model.Objects.NotFor(&asked, r, now); why != "" {
		return remediate.No, why
	}
	t := policy.EvaluateRequest(&asked, policy.Subject{Machine: f.Machine, Node: f.Node, Lease: f.Lease, Doubt: j.Doubt, NotOwned: j.NotOwned}, f.Cluster, now)
	switch {
	case t.Verdict != policy.Unhealthy:
		return remediate.No, "the request asks for nothing now: " + t.Message
	case !t.Acts():
		return remediate.No, "refused now: " + reason.Join(t.Refusals)
	}
	return remediate.Yes, ""
}

// evaluateFresh evaluates the fresh objects of a run by the rules of its check. Unless the answer
// is Yes, the check finds nothing wrong with them, for the reason why.
func (rc *runCluster) evaluateFresh(r remediate.Run, f run.Fresh, observed remediate.Observation, now time.Time,
) (check *policy.Check, found policy.TargetReport, answer remediate.Answer, why string) {
	j, seen := cluster.Evaluation{}, rc.View().Synced
	if seen {
		j, seen = rc.opt.Model.Objects.EvaluationOf(r, f.Machine, f.Node)
	}
	check = j.Check
	switch {
	case !seen:
		return nil, found, remediate.CannotTell, ""
	case j.NewMachine != "":
		return nil, found, remediate.No, "Machine " + j.NewMachine + " has claimed the Node since"
	case check == nil:
		return nil, found, remediate.No, "the check is gone"
	case !check.Covers(f.Machine, f.Node):
		return nil, found, remediate.No, "the check no longer selects the target"
	}
	if check.ClusterName != "" { // a check of the Cluster API depends on its Cluster
		if f.Cluster == nil && j.Context.Cluster != nil {
			return nil, found, remediate.CannotTell, ""
		}
		j.Context.Cluster = f.Cluster
	}
	found = policy.Evaluate(check, j.Context, policy.Subject{
		Machine: f.Machine, Node: f.Node, Gone: f.Node == nil && observed.Node.Exists == remediate.No, Lease: f.Lease,
		Doubt: j.Doubt, NotOwned: j.NotOwned, Requests: j.Requests, ReadsOff: ownBMCReadsOff(observed),
	}, now)
	if found.Verdict != policy.Unhealthy {
		return nil, found, remediate.No, "the target is " + string(found.Verdict) + " now: " + found.Message
	}
	return check, found, remediate.Yes, ""
}

// orderFresh is how long an order to fence is valid while nothing came of it: the person who gave
// it an hour ago may no longer want it.
const orderFresh = 10 * time.Minute

// age is how long ago at was. It includes the time for which this host was suspended.
func age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}

// ownBMCReadsOff says whether the host's own, identified BMC reads Off. A reading of another
// device shortens no wait.
func ownBMCReadsOff(s remediate.Observation) bool {
	return s.Level == 0 && s.ProofKind == remediate.ProofBMC && s.Power.State == bmc.Off && s.Identity == remediate.Yes
}

// leasesKept is how long the version of a Lease is remembered that nobody reads any more.
const leasesKept = time.Hour

// leasesSeen are the versions of kubelets' Leases that this process has read, by Node. The times in
// a Lease are those of whoever wrote it. When its version changed is by the clock of this process. // I4
type leasesSeen struct {
	mu     sync.Mutex
	byNode map[string]leaseSeen
}

// leaseSeen is one version of a Lease. It was first read at since, and last in a look that began at
// read. An earlier version was last read in a look that began at before; zero: none was.
type leaseSeen struct {
	version             string
	since, read, before time.Time
}

// note adds what a look that began at a time has read of a Node's Lease. It returns the Lease with the times at
// which its versions were read.
func (s *leasesSeen) note(node string, l remediate.Lease, began, now time.Time) policy.Lease {
	if !l.Known || l.ResourceVersion == "" {
		return policy.Lease{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.byNode[node]
	switch {
	case !known:
		maps.DeleteFunc(s.byNode, func(_ string, other leaseSeen) bool { return now.Sub(other.read) > leasesKept })
		seen = leaseSeen{version: l.ResourceVersion, since: now}
	case seen.version != l.ResourceVersion && !began.Before(seen.read): // else it is the answer of a slower look
		seen = leaseSeen{version: l.ResourceVersion, since: now, before: seen.read}
	}
	if began.After(seen.read) {
		seen.read = began
	}
	s.byNode[node] = seen
	return policy.Lease{RenewTime: l.RenewTime, Since: seen.since, Before: seen.before}
}

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
	case (!r.Intervened || r.Revalidate || r.Step.Idle()) && isOrderOld(r, now): // nothing came of it yet
		return remediate.Yes, orderTooOld
	case r.Manual != nil:
		return remediate.No, ""
	case !rc.View().Synced:
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
	return rc.withdrawnByCheck(r)
}

// withdrawnByCheck answers for a run that a check asks for. Only the view shows checks: in an old one it may have gone. // I16
func (rc *runCluster) withdrawnByCheck(r remediate.Run) (remediate.Answer, string) {
	current := rc.IsCurrent()
	answer, why := rc.opt.Model.Objects.Withdrawn(r)
	if answer == remediate.No && !current {
		return remediate.CannotTell, ""
	}
	return answer, why
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

const orderTooOld = "the order is more than ten minutes old and had no effect; give it again"

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
	case !restsBeforeIsolation(r) && rc.IsCurrent() && rc.opt.Model.RequestedAnew(r, now):
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
	answer, ended := rc.withdrawnByCheck(r)
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
