package admit

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Seen says whether the ledger has seen the whole cluster.
func (b *Book) Seen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.whole
}

func errNotSeen() error {
	return &reason.Refusal{Reason: reason.NotSynced, Message: "the cluster has not been seen whole yet"}
}

// TargetOn names the objects of one Node as a run would; false when neither a Node nor a
// Machine's node is called so.
func (b *Book) TargetOn(node string) (remediate.Target, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, m := b.ledger.Node(node), b.ledger.MachineOf(node)
	return targetOf(b.ledger, b.opt.Name, m, n, node), n != nil || m != nil
}

// Check gives a check as the ledger has it now, or nil.
func (b *Book) Check(id policy.CheckID) *policy.Check {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.Check(id)
}

// acting are the checks with targets that they want remediated.
func (b *Book) acting(now time.Time) []policy.CheckReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.Acting(now)
}

// onNode is what the checks find about one Node.
func (b *Book) onNode(node string, now time.Time) policy.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.OnNode(node, now)
}

// Counters lists the checks without their targets and counts the Nodes; none before the
// cluster was seen whole.
func (b *Book) Counters() (checks []policy.CheckReport, nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.whole {
		return nil, 0
	}
	return b.ledger.Counters(), b.ledger.Fleet("").Nodes
}

// WithTargets adds its targets to a check as they are now; false when it is gone.
func (b *Book) WithTargets(id policy.CheckID, now time.Time) (policy.CheckReport, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.CheckReport(id, now)
}

// Report is what the checks find now, with every target. Its cost grows with the cluster.
func (b *Book) Report() (policy.Report, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.whole {
		return policy.Report{}, errNotSeen()
	}
	return b.ledger.Report(time.Now()), nil
}

// Coverage says what every check and budget comes to.
func (b *Book) Coverage() ([]policy.Coverage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.whole {
		return nil, errNotSeen()
	}
	snap := b.ledger.Snapshot()
	return policy.Cover(b.ledger.Report(time.Now()), snap.Checks, snap.Budgets), nil
}

// controlPlaneSize is how many control-plane members the cluster shows.
func (b *Book) controlPlaneSize() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.ControlPlaneSize()
}

// renamedTo names another Node as which a run's host has come back, by its system UUID.
// unseen: the cluster was not seen whole, so nobody can say. // I6
func (b *Book) renamedTo(r remediate.Run) (node string, unseen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.whole {
		return "", true
	}
	for _, form := range bmc.UUIDForms(r.Target.SystemUUID) { // none for a placeholder
		for _, n := range b.ledger.OtherNodesWithUUID(r.Target.Node, form) {
			if cameBack(n, r) {
				return n.Name, false
			}
		}
	}
	return "", false
}
