package policy

import (
	"fmt"
	"time"
)

// Explain turns what the checks found about one Node into gates. Where several
// checks cover it, the one that is closest to acting is explained. Together
// with Guards this is the whole answer to "why is it fenced, or not".
func Explain(r Report, node string) []Gate {
	c, t := closest(&r, node)
	if t == nil {
		return explainUncovered(&r, node)
	}
	source := "check " + key(c.Namespace, c.Name)
	gates := []Gate{
		gate("check", true, "", string(c.State), string(StateActive), source),
		gate("verdict", t.Verdict == Unhealthy, NotUnhealthy, verdictText(t), string(Unhealthy), source).until(t.pendingUntil()),
		gate("limit", c.Allowed, ShortCircuit, fmt.Sprintf("%d of %d not healthy", c.Expected-c.Healthy, c.Expected),
			fmt.Sprintf("at most %d (%s)", c.MaxUnhealthy, c.Limit), source),
	}
	for _, reason := range t.Refusals {
		switch {
		case reason == ShortCircuit: // it is the limit's gate
		case reason == AlreadyRequested && t.Action == PowerCycle:
			// The daemon is the one that carries the request out.
			gates = append(gates, gate("request", true, "", "made on the Machine", "made or not", source))
		case reason == NodeAlive:
			gates = append(gates, gate("target", false, reason, t.Message, string(t.Action), source).until(t.Due))
		default:
			gates = append(gates, gate("target", false, reason, t.Message, string(t.Action), source))
		}
	}
	return gates
}

// explainUncovered says why no check judges the Node: there is none, or it is
// paused, disabled or invalid.
func explainUncovered(r *Report, node string) []Gate {
	var gates []Gate
	for i := range r.Checks {
		c := &r.Checks[i]
		if c.State == StateActive || !c.unread && !c.idle[node] {
			continue
		}
		gates = append(gates, gate("check", false, stateReason(c.State), fmt.Sprintf("%s: %s", c.State, c.Message),
			string(StateActive), "check "+key(c.Namespace, c.Name)))
	}
	if len(gates) == 0 {
		gates = append(gates, gate("check", false, NotCovered, "no check covers "+node, "covered by a check", "checks"))
	}
	return gates
}

// closest is the check that is nearest to acting on a Node, and its target.
func closest(r *Report, node string) (check *CheckReport, target *TargetReport) {
	for i := range r.Checks {
		c := &r.Checks[i]
		for j := range c.Targets {
			t := &c.Targets[j]
			if t.Node == node && node != "" && (target == nil || t.closerThan(target)) {
				check, target = c, t
			}
		}
	}
	return check, target
}

// closerThan orders targets by how near they are to being acted on.
func (t *TargetReport) closerThan(o *TargetReport) bool {
	a, b := nearness[t.Verdict], nearness[o.Verdict]
	switch {
	case a != b:
		return a > b
	case t.Verdict == Pending:
		return !t.Due.IsZero() && (o.Due.IsZero() || t.Due.Before(o.Due))
	}
	return len(t.Refusals) < len(o.Refusals)
}

var nearness = map[Verdict]int{Unhealthy: 4, Pending: 3, Indeterminate: 2, Healthy: 1}

func verdictText(t *TargetReport) string {
	if t.Message == "" {
		return string(t.Verdict)
	}
	return fmt.Sprintf("%s: %s", t.Verdict, t.Message)
}

// pendingUntil is when the running clock ends; zero when none runs.
func (t *TargetReport) pendingUntil() time.Time {
	if t.Verdict != Pending {
		return time.Time{}
	}
	return t.Due
}
