package admit

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// runCluster implements run.Cluster: it is the cluster that the runs see.
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
	b := rc.opt.Book
	b.mu.Lock()
	if m := b.ledger.MachineIn(t.MachineAPI, t.Namespace, t.Machine); m != nil {
		names = append(names, m.NodeName)
	}
	if m := b.ledger.MachineOf(t.Node); m != nil {
		names = append(names, m.Key())
	}
	b.mu.Unlock()
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// Justified implements run.Cluster: it evaluates the fresh objects by the rules of the run's
// check. A person's order needs no check. // I4
func (rc *runCluster) Justified(r remediate.Run, f run.Fresh, observed remediate.Observation, now time.Time) (remediate.Answer, string) {
	switch {
	case isOrderOld(r, now): // a run that has begun to switch needs this only until a command has an effect; it may come from a backup
		return remediate.No, orderTooOld
	case hasHadEffect(r, observed.Node):
		return remediate.No, "the host has booted since fenced began to switch it off, and its Node is Ready; give the order again"
	case r.Manual != nil:
		return remediate.Yes, ""
	}
	return rc.askedFresh(candidate{draft: r}, f, observed, now)
}

// askedFresh answers whether a check or a request asks for the action of a candidate, by the fresh objects of
// its target: one that fenced carries out, or that another remediator is asked to do. // I4
func (rc *runCluster) askedFresh(a candidate, f run.Fresh, observed remediate.Observation, now time.Time) (remediate.Answer, string) {
	r, t := a.draft, a.draft.Target
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
	case !a.isSameAction(check, &found):
		return remediate.No, "the check asks for something else now"
	case !a.isAskedFor(check, &found):
		return remediate.No, "refused now: " + reason.Join(found.Refusals)
	}
	return remediate.Yes, ""
}

// hasHadEffect says whether the host of a run that began by an order was power-cycled since, and works: the
// record is one of an old backup, or somebody has switched the host on. // I4
func hasHadEffect(r remediate.Run, n remediate.Node) bool {
	begun := r.Manual != nil && r.Attempt == 1 && r.Intervened && !r.Revalidate && r.Isolated.IsZero()
	return begun && n.Ready == remediate.Yes && n.BootID != "" && r.Target.BootID != "" && n.BootID != r.Target.BootID
}

// evaluateFresh evaluates the fresh objects of a run by the rules of its check. Unless the answer
// is Yes, the check finds nothing wrong with them, for the reason why.
func (rc *runCluster) evaluateFresh(r remediate.Run, f run.Fresh, observed remediate.Observation, now time.Time,
) (check *policy.Check, found policy.TargetReport, answer remediate.Answer, why string) {
	j, seen := evaluation{}, rc.opt.View.View().Synced
	if seen {
		j, seen = rc.opt.Book.evaluationOf(r, f.Machine, f.Node)
	}
	check = j.check
	switch {
	case !seen:
		return nil, found, remediate.CannotTell, ""
	case j.newMachine != "":
		return nil, found, remediate.No, "Machine " + j.newMachine + " has claimed the Node since"
	case check == nil:
		return nil, found, remediate.No, "the check is gone"
	case !check.Covers(f.Machine, f.Node):
		return nil, found, remediate.No, "the check no longer selects the target"
	}
	if check.ClusterName != "" { // a check of the Cluster API depends on its Cluster
		if f.Cluster == nil && j.context.Cluster != nil {
			return nil, found, remediate.CannotTell, ""
		}
		j.context.Cluster = f.Cluster
	}
	found = policy.Evaluate(check, j.context, policy.Subject{
		Machine: f.Machine, Node: f.Node, Gone: f.Node == nil && observed.Node.Exists == remediate.No, Lease: f.Lease,
		Doubt: j.doubt, NotOwned: j.notOwned, Requests: j.requests, ReadsOff: ownBMCReadsOff(observed),
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

// evaluation is what policy needs to evaluate the target of one run again: the check as it
// is now, and its surroundings.
type evaluation struct {
	check      *policy.Check // nil: it is gone
	context    policy.CheckContext
	requests   []*policy.Request
	doubt      policy.Doubt // why the fresh Machine and Node may not belong together
	notOwned   policy.NotOwned
	newMachine string // the Machine that has claimed the Node since; "" if the run has a Machine
}

// evaluationOf finds the run's check and what it needs to evaluate the fresh Machine m and
// Node n, each of which may be nil. ok is false before the view is complete: after a start
// the ledger knows only the checks from files.
func (b *Book) evaluationOf(r remediate.Run, m *policy.Machine, n *policy.Node) (j evaluation, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return evaluation{}, false
	}
	j.doubt, j.notOwned = b.ledger.Doubt(m, n), b.ledger.NotOwned(m, n)
	if m := b.ledger.MachineOf(r.Target.Node); m != nil && r.Target.Machine == "" {
		j.newMachine = m.Key()
	}
	if check, _ := checkOf(b.ledger, r); check != nil {
		name := r.Target.Machine // the name of a target in the check
		if check.SelectsNodes {
			name = r.Target.Node
		}
		j.check, j.context, j.requests = check, b.ledger.CheckContext(check), b.ledger.Requests(name, m, n)
	}
	return j, true
}
