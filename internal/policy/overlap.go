package policy

import (
	"fmt"
	"slices"

	"github.com/fenced/fenced/internal/reason"
)

// claim is the result of one check for a target.
type claim struct {
	check  *CheckReport
	target *TargetReport
	// disproved: the providerID of the Node is not that of the Machine.
	disproved bool
}

// refuseOverlaps resolves conflicts where several checks cover one target: the
// most restrictive check wins. A closed gate of one check closes it for all. A
// check that only counts forbids every action. Of two actions the gentler one is
// allowed. A check in doubt might have asked for the gentlest action, or asks another
// remediator already.
// A Machine that does not own its Node is a target of its own, and so is one on a management API apart that
// has the name of another.
func (w *tables) refuseOverlaps(r *Report) {
	claims := map[string][]claim{}
	for i := range r.Checks {
		c := &r.Checks[i]
		for j := range c.Targets {
			t := &c.Targets[j]
			of, m, n := t.Subject(), machineOfTarget(w, t), w.nodes[t.Node]
			switch {
			case m != nil && t.Node != "" && w.owns(m, n):
			case m != nil:
				of += " of " + w.rules.spaceOf(m.Group(), m.Namespace).text() + "/" + m.Name
			}
			claims[of] = append(claims[of], claim{c, t, m != nil && n != nil && n.ProviderID != "" && !sameProvider(m.ProviderID, n.ProviderID)})
		}
	}
	for _, group := range claims {
		if len(group) > 1 {
			refuseConflicting(group)
		}
	}
}

func refuseConflicting(group []claim) {
	gentlest, closed, countOnly, handedOver := severity[DeleteMachine], false, false, false
	doubts := firstOfEach(group, 1, func(g claim) (*CheckReport, bool) { return g.check, g.isDoubtful() })
	for _, g := range group {
		closed = closed || !g.check.Allowed
		countOnly = countOnly || g.check.countOnly
		handedOver = handedOver || g.target.isHandedOver()
		if g.target.Action != None {
			gentlest = min(gentlest, severity[g.target.Action])
		}
	}
	for _, g := range group {
		if g.target.Action == None {
			continue
		}
		if countOnly || closed && g.check.Allowed || handedOver && !g.target.isHandedOver() || severity[g.target.Action] > gentlest || g.doubtedBy(doubts) {
			g.target.refuse(reason.Overlap)
		}
	}
	oneRequest(group)
	stricter := firstOfEach(group, maxOverlapGates+1, claim.strictness)
	for _, g := range group {
		if slices.Contains(g.target.Refusals, reason.Overlap) {
			g.target.overlaps = g.overlapGates(stricter)
		}
	}
}

// maxOverlapGates is how many checks a refusal names. One target may have as many checks as the
// target limit allows, and each of them could name all others.
const maxOverlapGates = 4

// firstOfEach returns the first claims of each kind, in their order.
func firstOfEach[K comparable](group []claim, most int, kind func(claim) (K, bool)) (list []claim) {
	found := map[K]int{}
	for _, g := range group {
		if k, ok := kind(g); ok && found[k] < most {
			found[k]++
			list = append(list, g)
		}
	}
	return list
}

type strictness struct {
	countOnly, allowed, handedOver, doubtful bool
	action                                   Action
}

// strictness says what of a claim may refuse the actions of others; claims that have the same refuse the same.
func (g claim) strictness() (kind strictness, ok bool) {
	kind = strictness{g.check.countOnly, g.check.Allowed, g.target.isHandedOver(), g.isDoubtful(), g.target.Action}
	return kind, kind.countOnly || !kind.allowed || kind.handedOver || kind.doubtful || kind.action != None
}

// overlapGates names checks of a group that refuse the action of one of them.
func (g claim) overlapGates(stricter []claim) (gates []reason.Gate) {
	for _, o := range stricter {
		if o.check == g.check {
			continue
		}
		if len(gates) == maxOverlapGates {
			break
		}
		if why := o.overlapReason(g.target); why != "" {
			gates = append(gates, reason.NewGate("overlap", false, reason.Overlap, why, "no stricter check", o.check.source()))
		}
	}
	return gates
}

// isDoubtful: the check cannot determine the Node of the target, or its Machine.
func (t *TargetReport) isDoubtful() bool {
	return t.Verdict == Indeterminate && (t.Reason == reason.Undecodable || t.Reason == reason.NodeMismatch)
}

// isDoubtful: the check is in doubt, and the Node does not show that it is another Machine's.
func (g claim) isDoubtful() bool { return g.target.isDoubtful() && !g.disproved }

// doubtedBy: another check is in doubt about the same host, maybe under the name of another Machine. It might
// have asked for a power cycle, so nothing more severe is done.
func (g claim) doubtedBy(doubts []claim) bool {
	return g.target.Action != PowerCycle && slices.ContainsFunc(doubts, func(o claim) bool { return o.check != g.check })
}

// isHandedOver: the check has already handed the target to another remediator,
// which may be at work, also where the check is in doubt now. // I22
func (t *TargetReport) isHandedOver() bool {
	return t.handedOver || t.Action != PowerCycle && slices.Contains(t.Refusals, reason.AlreadyRequested)
}

// oneRequest lets only the first of several NodeHealthChecks request the
// remediation of a Node: two remediators must not work on it at the same time.
// The other API families name a request after its Machine, so a second check
// finds the first request.
func oneRequest(group []claim) {
	requested := false
	for _, g := range group {
		if g.check.Kind != NodeHealthCheckKind || g.target.Action != CreateRequest || len(g.target.Refusals) > 0 {
			continue
		}
		if requested {
			g.target.refuse(reason.Overlap)
		}
		requested = true
	}
}

// severity orders the actions. A power cycle keeps the disks. A request leaves
// the choice to another controller. An owner applies limits of its own. A
// deletion is final.
var severity = map[Action]int{PowerCycle: 1, CreateRequest: 2, MarkOwner: 3, DeleteMachine: 4}

// overlapReason returns why the result of a check for a target refuses the action
// of another check, "" if it does not.
func (g claim) overlapReason(t *TargetReport) string {
	r, o := g.check, g.target
	switch {
	case o.Subject() != t.Subject():
		return ""
	case r.countOnly:
		return "this check only counts"
	case !r.Allowed:
		return "the limit of this check is exceeded"
	case o.isHandedOver():
		return "this check has asked another remediator already"
	case g.isDoubtful() && t.Action != PowerCycle:
		return "this check is in doubt, and might ask for a power cycle: " + o.Message
	case o.Action != None && severity[o.Action] < severity[t.Action]:
		return fmt.Sprintf("this check asks for %s, which is gentler than %s", o.Action, t.Action)
	case o.Action == CreateRequest && t.Action == CreateRequest:
		return "this check asks first"
	}
	return ""
}
