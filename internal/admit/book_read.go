package admit

import (
	"cmp"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Seen says whether the ledger has the complete view of the cluster.
func (b *Book) Seen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.complete
}

func errNotSeen() error {
	return &reason.Refusal{Reason: reason.NotSynced, Message: "the watch of the cluster is not complete yet; try again in a few seconds"}
}

// TargetOn returns the objects of one Node as the target of a run; false when no Node has
// this name and no Machine refers to it.
func (b *Book) TargetOn(node string) (remediate.Target, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, m := b.ledger.Node(node), b.ledger.MachineOf(node)
	return targetOf(b.ledger, b.opt.Name, m, n, node), n != nil || m != nil
}

// Check returns a check as the ledger has it now, or nil.
func (b *Book) Check(id policy.CheckID) *policy.Check {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.Check(id)
}

// actingChecks lists the checks with the targets that they want remediated.
func (b *Book) actingChecks(now time.Time) []policy.CheckReport {
	b.mu.Lock()
	list := b.ledger.Acting(now)
	b.mu.Unlock()
	fewestFirst(list)
	return list
}

// fewestFirst puts files and checks without a namespace first, then the namespaces with the fewest targets. A
// decision may have no time for all, and whoever makes up many in one namespace must not come before the others.
func fewestFirst(list []policy.CheckReport) {
	of := func(c *policy.CheckReport) string {
		if c.Source != "" && c.Source != "cluster" {
			return ""
		}
		return c.Namespace
	}
	targets := map[string]int{}
	for i := range list {
		if namespace := of(&list[i]); namespace != "" {
			targets[namespace] += len(list[i].Targets)
		}
	}
	slices.SortStableFunc(list, func(x, y policy.CheckReport) int { return cmp.Compare(targets[of(&x)], targets[of(&y)]) })
}

// nodeReport is what the checks find about one Node.
func (b *Book) nodeReport(node string, now time.Time) policy.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.OnNode(node, now)
}

// Counters lists the checks without their targets, and counts the Nodes. It returns nothing
// before the view is complete.
func (b *Book) Counters() (checks []policy.CheckReport, nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return nil, 0
	}
	return b.ledger.Counters(), b.ledger.Fleet("").Nodes
}

// WithTargets adds its targets to a check as they are now. matched is false while no Machine
// has its Node: the Nodes may be those of another cluster, and say nothing about the Machines.
// found is false when the check is gone.
func (b *Book) WithTargets(id policy.CheckID, now time.Time) (r policy.CheckReport, matched, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, found = b.ledger.CheckReport(id, now)
	return r, anyMachineHasItsNode(b.ledger), found
}

// Report is what the checks find now, with every target. Its cost grows with the size of
// the cluster.
func (b *Book) Report() (policy.Report, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return policy.Report{}, errNotSeen()
	}
	return b.ledger.Report(time.Now()), nil
}

// Coverage says what every check and budget selects and allows.
func (b *Book) Coverage() ([]policy.Coverage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return nil, errNotSeen()
	}
	snap := b.ledger.Snapshot()
	return policy.Cover(b.ledger.Report(time.Now()), snap.Checks, snap.Budgets), nil
}

// quorum says why etcd would lose its quorum without the member on a Node, by members that were just
// read; "" if it would not. // I12
func (b *Book) quorum(members []policy.Member, node string) (reason.Code, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.Quorum(members, node)
}

// takesTurn says whether other control-plane hosts wait for the one with this Node and this Machine,
// either of which may be nil. // I12
func (b *Book) takesTurn(n *policy.Node, m *policy.Machine) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.TakesTurn(n, m)
}

// renamedTo returns the name of another Node with the system UUID of the run's host: the
// host has registered under that name. unseen: the view is not complete, so the answer is
// not known. // I6
func (b *Book) renamedTo(r remediate.Run) (node string, unseen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return "", true
	}
	for _, n := range b.ledger.OtherNodesWithUUID(r.Target.Node, cmp.Or(r.Target.SystemUUID, r.Target.ReportedUUID)) { // none for a placeholder
		if hasReturned(n, r) {
			return n.Name, false
		}
	}
	return "", false
}
