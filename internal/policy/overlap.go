package policy

import (
	"slices"

	"github.com/fenced/fenced/internal/reason"
)

// claim is one check's interest in a target.
type claim struct {
	check  *CheckReport
	target *TargetReport
}

// refuseOverlaps settles what happens where several checks cover one target:
// the most restrictive wins. A closed gate of any of them closes it for all, a
// check that only counts forbids every action, and of two different actions
// the gentler one stands. A check that cannot tell might have asked for the gentlest.
func refuseOverlaps(r *Report) {
	claims := map[string][]claim{}
	for i := range r.Checks {
		c := &r.Checks[i]
		for j := range c.Targets {
			t := &c.Targets[j]
			claims[t.subject()] = append(claims[t.subject()], claim{c, t})
		}
	}
	for _, group := range claims {
		if len(group) > 1 {
			settle(group)
		}
	}
}

func settle(group []claim) {
	gentlest, closed, pet, asked := severity[DeleteMachine], false, false, false
	var doubts []claim
	for _, g := range group {
		if g.isDoubtful() {
			doubts = append(doubts, g)
		}
		closed = closed || !g.check.Allowed
		pet = pet || g.check.countOnly
		asked = asked || g.asked()
		if g.target.Action != None {
			gentlest = min(gentlest, severity[g.target.Action])
		}
	}
	for _, g := range group {
		if g.target.Action == None {
			continue
		}
		if pet || closed && g.check.Allowed || asked && !g.asked() || severity[g.target.Action] > gentlest || g.doubtedBy(doubts) {
			g.target.refuse(reason.Overlap)
		}
	}
	oneRequest(group)
}

// isDoubtful: the check cannot tell which Node the target has, or whose it is.
func (g claim) isDoubtful() bool {
	return g.target.Verdict == Indeterminate && (g.target.Reason == reason.Undecodable || g.target.Reason == reason.NodeMismatch)
}

// doubtedBy: another check that doubts about the same Machine might have asked for a
// power cycle, so nothing less gentle is done.
func (g claim) doubtedBy(doubts []claim) bool {
	return g.target.Action != PowerCycle && slices.ContainsFunc(doubts, func(o claim) bool {
		return o.check != g.check && (o.target.Machine == "" || o.target.Machine == g.target.Machine)
	})
}

// asked: the check has handed the target to another remediator already, which
// may be at work. // I22
func (g claim) asked() bool {
	return g.target.Action != PowerCycle && slices.Contains(g.target.Refusals, reason.AlreadyRequested)
}

// oneRequest lets only the first of several NodeHealthChecks ask for the
// remediation of a Node: two remediators must not work on it at once. The other
// lineages name a request after its Machine, so a second one finds the first.
func oneRequest(group []claim) {
	taken := false
	for _, g := range group {
		if g.check.Kind != NodeHealthCheckKind || g.target.Action != CreateRequest || len(g.target.Refusals) > 0 {
			continue
		}
		if taken {
			g.target.refuse(reason.Overlap)
		}
		taken = true
	}
}

// severity orders the actions: a power cycle keeps the disks, a request leaves
// the choice to another controller, an owner has brakes of its own, a deletion
// is final.
var severity = map[Action]int{PowerCycle: 1, CreateRequest: 2, MarkOwner: 3, DeleteMachine: 4}
