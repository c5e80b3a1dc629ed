package engine

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Justified implements run.Cluster: it judges the fresh objects with the check's own rules. A person's
// order justifies itself. // I4
func (c led) Justified(r remediate.Run, f run.Fresh, seen remediate.Observation, now time.Time) (remediate.Answer, string) {
	t := r.Target
	switch {
	case r.Manual != nil && !r.Intervened && age(r.Manual.At, now) > orderFresh:
		return remediate.No, "the order is older than " + orderFresh.String() + ", and nothing was done on it; give it again"
	case r.Manual != nil:
		return remediate.Yes, ""
	case t.Machine != "" && seen.Machine.Exists == remediate.CannotTell, t.Node != "" && seen.Node.Exists == remediate.CannotTell:
		return remediate.CannotTell, ""
	case t.Machine != "" && (f.Machine == nil || f.Machine.UID != t.MachineUID):
		return remediate.No, "the Machine is gone or was replaced"
	case t.Machine == "" && f.Node == nil:
		return remediate.No, "the Node is gone"
	}
	check, a, synced := c.checkOf(r)
	doubt, claimed := c.claimed(r, f)
	switch {
	case !synced:
		return remediate.CannotTell, ""
	case claimed != "":
		return remediate.No, "Machine " + claimed + " has claimed the Node since"
	case check == nil:
		return remediate.No, "the check is gone"
	case !check.Covers(f.Machine, f.Node):
		return remediate.No, "the check does not select it any more"
	}
	if check.ClusterName != "" { // else nothing of the Cluster API is asked
		if f.Cluster == nil && a.Cluster != nil {
			return remediate.CannotTell, ""
		}
		a.Cluster = f.Cluster
	}
	found := policy.Evaluate(check, a, policy.Subject{
		Machine: f.Machine, Node: f.Node, Gone: f.Node == nil && seen.Node.Exists == remediate.No, Lease: f.Lease,
		Doubt: doubt, Requests: c.requests(r, check), ReadsOff: evident(seen),
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

// claimed says whether the fresh Machine and Node may not belong together, and
// which Machine has turned up for the Node of a run that has none.
func (c *cluster) claimed(r remediate.Run, f run.Fresh) (doubt policy.Doubt, by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.ledger.MachineOf(r.Target.Node); m != nil && r.Target.Machine == "" {
		by = m.Key()
	}
	return c.ledger.Doubt(f.Machine, f.Node), by
}

// requests are those for the run's target, under the name that the check knows
// it by.
func (c *cluster) requests(r remediate.Run, check *policy.Check) []*policy.Request {
	name := r.Target.Machine
	if check.SelectsNodes {
		name = r.Target.Node
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Requests(name)
}

// checkOf finds the run's check in the present view, and what it is judged amid.
func (c *cluster) checkOf(r remediate.Run) (*policy.Check, policy.CheckContext, bool) {
	if !c.view().Synced {
		return nil, policy.CheckContext{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.judged { // after a start the ledger knows only the checks from files
		return nil, policy.CheckContext{}, false
	}
	for _, counters := range c.ledger.Counters() {
		if check := c.ledger.Check(counters.ID()); check != nil && isCheckOf(r, check) {
			return check, c.ledger.CheckContext(check), true
		}
	}
	return nil, policy.CheckContext{}, true
}

// isCheckOf says whether a check is the run's. Older records, which name no kind, are
// from a version that knew only OpenShift's.
func isCheckOf(r remediate.Run, c *policy.Check) bool {
	if r.CheckID == "" {
		return c.APIVersion == policy.OpenShiftMachineAPI && c.Key() == r.Check
	}
	return checkID(c.ID()) == r.CheckID
}
