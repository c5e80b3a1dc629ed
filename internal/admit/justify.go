package admit

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// runCluster is the cluster as its runs see it: it implements run.Cluster.
type runCluster struct {
	opt      Options
	probes   *probes
	recorder recorder
	wake     func()
}

// Wake implements run.Cluster.
func (rc *runCluster) Wake() { rc.wake() }

// Clock implements run.Cluster.
func (rc *runCluster) Clock() (agrees remediate.Answer, wrong string) { return rc.opt.View.Clock() }

// Quorum implements run.Cluster.
func (rc *runCluster) Quorum(r remediate.Run, f run.Fresh) (reason.Code, string) {
	return rc.probes.quorum(r, f)
}

// RenamedTo implements run.Cluster.
func (rc *runCluster) RenamedTo(r remediate.Run) (node string, unseen bool) {
	if !rc.opt.View.View().Synced {
		return "", true
	}
	return rc.opt.Book.renamedTo(r)
}

// Justified implements run.Cluster: it judges the fresh objects with the check's own
// rules. A person's order justifies itself. // I4
func (rc *runCluster) Justified(r remediate.Run, f run.Fresh, observed remediate.Observation, now time.Time) (remediate.Answer, string) {
	t := r.Target
	switch {
	case r.Manual != nil && !r.Intervened && age(r.Manual.At, now) > orderFresh:
		return remediate.No, "the order is older than " + orderFresh.String() + ", and nothing was done on it; give it again"
	case r.Manual != nil:
		return remediate.Yes, ""
	case t.Machine != "" && observed.Machine.Exists == remediate.CannotTell, t.Node != "" && observed.Node.Exists == remediate.CannotTell:
		return remediate.CannotTell, ""
	case t.Machine != "" && (f.Machine == nil || f.Machine.UID != t.MachineUID):
		return remediate.No, "the Machine is gone or was replaced"
	case t.Machine == "" && f.Node == nil:
		return remediate.No, "the Node is gone"
	}
	j, seen := judgement{}, rc.opt.View.View().Synced
	if seen {
		j, seen = rc.opt.Book.judgementOf(r, f.Machine, f.Node)
	}
	check := j.check
	switch {
	case !seen:
		return remediate.CannotTell, ""
	case j.claimed != "":
		return remediate.No, "Machine " + j.claimed + " has claimed the Node since"
	case check == nil:
		return remediate.No, "the check is gone"
	case !check.Covers(f.Machine, f.Node):
		return remediate.No, "the check does not select it any more"
	}
	if check.ClusterName != "" { // else nothing of the Cluster API is asked
		if f.Cluster == nil && j.context.Cluster != nil {
			return remediate.CannotTell, ""
		}
		j.context.Cluster = f.Cluster
	}
	found := policy.Evaluate(check, j.context, policy.Subject{
		Machine: f.Machine, Node: f.Node, Gone: f.Node == nil && observed.Node.Exists == remediate.No, Lease: f.Lease,
		Doubt: j.doubt, Requests: j.requests, ReadsOff: evident(observed),
	}, now)
	switch {
	case found.Verdict != policy.Unhealthy:
		return remediate.No, "the target is " + string(found.Verdict) + " now: " + found.Message
	case strategyOf(check, &found) != r.Strategy:
		return remediate.No, "the check asks for something else now"
	case !acts(check, &found):
		return remediate.No, fmt.Sprintf("refused now: %v", found.Refusals)
	}
	return remediate.Yes, ""
}

// orderFresh is for how long a person's order to fence counts while nothing was done on it:
// whoever gave it an hour ago may not want it any more.
const orderFresh = 10 * time.Minute

// age is how long ago that was, also where this host was suspended meanwhile.
func age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}

// evident says whether the host's own BMC reads Off; what others say shortens no
// wait.
func evident(s remediate.Observation) bool {
	return s.Level == 0 && s.ProofKind == remediate.ProofBMC && s.Power.State == bmc.Off && s.Identity == remediate.Yes
}

// isCheckOf says whether a check is the run's. Older records, which name no kind, are
// from a version that knew only OpenShift's.
func isCheckOf(r remediate.Run, c *policy.Check) bool {
	if r.CheckID == "" {
		return c.APIVersion == policy.OpenShiftMachineAPI && c.Key() == r.Check
	}
	return checkID(c.ID()) == r.CheckID
}
