package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/typo"
)

// Explain turns the results of the checks for one Node, or for the Machine
// "namespace/name" without a Node, into gates. If several
// checks cover the Node, it explains the one that is closest to acting. Together
// with the gates of package guard this answers "why is it fenced, or not".
func Explain(r Report, node string) []reason.Gate {
	c, t := closest(&r, node)
	if t == nil {
		return explainUncovered(&r, node)
	}
	return ExplainTarget(c, t)
}

// ExplainTarget turns the result of one check for one of its targets into gates,
// the check's own gates first.
func ExplainTarget(c *CheckReport, t *TargetReport) []reason.Gate {
	source, verdict, until := c.source(), string(t.Verdict), time.Time{}
	if t.Message != "" {
		verdict += ": " + t.Message
	}
	if t.Verdict == Pending {
		until = t.Due
	}
	gates := []reason.Gate{
		reason.NewGate("check", true, "", string(c.State), string(StateActive), source),
		reason.NewGate("verdict", t.Verdict == Unhealthy, reason.NotUnhealthy, verdict, string(Unhealthy), source).PassesFrom(until),
		c.LimitGate(),
	}
	for _, code := range t.Refusals {
		gates = append(gates, t.refusalGates(c, code)...)
	}
	return gates
}

// LimitGate is the check's own limit on unhealthy targets.
func (r *CheckReport) LimitGate() reason.Gate {
	code, name := reason.ShortCircuit, r.Limit
	if r.minHealthy { // a percentage alone would be ambiguous: minHealthy counts the healthy ones
		name = "minHealthy " + name
	}
	if r.LimitRoundsToZero() != "" {
		name += ", rounded down"
	}
	threshold := fmt.Sprintf("at most %d (%s)", r.MaxUnhealthy, name)
	if slices.Contains(r.gate, reason.OutOfRange) {
		code = reason.OutOfRange
	}
	if r.MinUnhealthy > 0 {
		threshold = fmt.Sprintf("%d to %d (%s)", r.MinUnhealthy, r.MaxUnhealthy, r.Limit)
	}
	return reason.NewGate("limit", r.Allowed, code, fmt.Sprintf("%d of %d not healthy", r.Expected-r.Healthy, r.Expected)+r.runningText()+r.doubtText(), threshold, r.source())
}

// LimitRoundsToZero says that the limit is a percentage of so few targets that it allows no unhealthy one, so that the check
// remediates nothing; "" if it is none, or meant to be so.
func (r *CheckReport) LimitRoundsToZero() string {
	if r.State != StateActive || r.Expected == 0 || r.minHealthy && r.Limit == "100%" {
		return ""
	}
	return roundsToZero(r.Limit, r.MaxUnhealthy, r.Expected)
}

// roundsToZero says that a limit of so many targets allows 0 unhealthy ones; "" if it allows one, or is an explicit zero.
func roundsToZero(limit string, allows, of int) string {
	if allows > 0 || !strings.HasSuffix(limit, "%") || strings.Trim(limit, "0") == "%" {
		return ""
	}
	return fmt.Sprintf("%s of %d allows 0 unhealthy targets, so nothing is ever remediated", limit, of)
}

// runningText says how many of the targets that are not healthy are under remediation: nobody sees the
// Nodes that their runs have deleted.
func (r *CheckReport) runningText() string {
	if r.running == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of them under remediation", r.running)
}

// doubtText says how many of them do not count for the minimum of a range.
func (r *CheckReport) doubtText() string {
	if r.doubtful == 0 || r.MinUnhealthy == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of them in doubt, so that they do not count for the minimum", r.doubtful)
}

// refusalGates are the gates of one refusal, with the numbers or names behind it.
func (t *TargetReport) refusalGates(c *CheckReport, code reason.Code) []reason.Gate {
	closed := func(name, value, threshold string) reason.Gate {
		return reason.NewGate(name, false, code, value, threshold, c.source())
	}
	switch code {
	case reason.ShortCircuit, reason.OutOfRange:
		return nil // LimitGate covers it
	case reason.AlreadyRequested:
		if t.Action == PowerCycle { // the daemon itself carries the request out
			return []reason.Gate{reason.NewGate("request", true, "", "made on the Machine", "made or not", c.source())}
		}
		return []reason.Gate{closed("request", "made already", "not made yet")}
	case reason.Budget:
		return t.budgets
	case reason.Overlap:
		if len(t.overlaps) > 0 {
			return t.overlaps
		}
	case reason.StormCooldown:
		return []reason.Gate{closed("storm", "too many targets were unhealthy until a short while ago", "the cooldown is over").PassesFrom(c.Due)}
	case reason.ClusterUpgrading:
		return []reason.Gate{closed("upgrade", cmp.Or(c.upgrading, t.Message), "no upgrade")}
	case reason.PauseRequested:
		return []reason.Gate{closed("pauseRequests", cmp.Or(c.Message, "none"), "none")}
	case reason.Delegated:
		return []reason.Gate{closed("executor", "the check's template leaves the remediation to another controller", "a template of fenced.io, or none")}
	case reason.QuorumLost, reason.QuorumUnknown:
		return []reason.Gate{closed("etcd", quorumText[code], "a quorum without it")}
	case reason.NodeNotOwned:
		return []reason.Gate{closed("claim", t.Message, "a Node that names the Machine")}
	case reason.UnderRemediation:
		return []reason.Gate{closed("openRun", t.Message, "no open run on the host")}
	case reason.DuplicateUUID:
		return []reason.Gate{closed("uniqueUUID", t.Message, "no other Node with the system UUID")}
	case reason.Contested:
		return []reason.Gate{closed("contested", t.Message, "a BareMetalHost without a power request of somebody else")}
	case reason.InvalidHost:
		return []reason.Gate{closed("host", t.Message, "a BareMetalHost of the Machine")}
	case reason.ControlPlaneBusy:
		return []reason.Gate{closed("controlPlane", "another control-plane host is, or will be, remediated first", "one at a time")}
	}
	if text, ok := targetText[code]; ok {
		return []reason.Gate{closed(text.gate, text.value, text.threshold).PassesFrom(t.Due)}
	}
	return []reason.Gate{closed("target", t.Message, string(t.Action)).PassesFrom(t.Due)}
}

// targetText describes the refusals that depend on one target alone.
var targetText = map[reason.Code]struct{ gate, value, threshold string }{
	reason.Deleting:       {"deleting", "the Machine or Node is being deleted", "not being deleted"},
	reason.NoController:   {"owner", "no controller owns the Machine", "a controller that recreates it"},
	reason.ControlPlane:   {"controlPlane", "a control-plane host", "allowed by guards.controlPlane or guards.deleteControlPlaneMachines, and owned by a controller that recreates it"},
	reason.NodeAlive:      {"lease", "Ready is Unknown, but the kubelet renews its Lease", "not renewed for 60s"},
	reason.PowerOwner:     {"powerOwner", "the BareMetalHost has disablePowerOff: true or online: false, is paused, or its operator is at work on it; or it belongs to another Machine, or to none while the Machine has no Node", "a host that may be turned off"},
	reason.NoTemplateLeft: {"escalation", "every template was tried", "a template that was not tried yet"},
}

var quorumText = map[reason.Code]string{
	reason.QuorumLost:    "etcd would lose its quorum",
	reason.QuorumUnknown: "no etcd member is seen, or one of them cannot be read",
}

// source is the check's name in a gate.
func (r *CheckReport) source() string { return "check " + key(r.Namespace, r.Name) }

// explainUncovered returns the gates that say why no check evaluates the Node: none covers it, or the
// check is paused, disabled or invalid.
func explainUncovered(r *Report, node string) []reason.Gate {
	var gates []reason.Gate
	for i := range r.Checks {
		c := &r.Checks[i]
		if c.State == StateActive || !c.unread && !c.idle[node] {
			continue
		}
		gates = append(gates, reason.NewGate("check", false, c.State.Reason(), fmt.Sprintf("%s: %s", c.State, c.Message),
			string(StateActive), c.source()).PassesFrom(c.Due))
	}
	if len(gates) == 0 {
		gates = append(gates, reason.NewGate("check", false, reason.NotCovered, "no check covers "+node, "covered by a check", "checks"))
	}
	return gates
}

// closest returns the check that is nearest to acting on a Node, and its target.
func closest(r *Report, node string) (check *CheckReport, target *TargetReport) {
	for i := range r.Checks {
		c := &r.Checks[i]
		for j := range c.Targets {
			t := &c.Targets[j]
			if t.Subject() == node && node != "" && (target == nil || t.closerThan(target)) {
				check, target = c, t
			}
		}
	}
	return check, target
}

// closerThan orders targets by how close they are to an action.
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

// Coverage is what one check, or one DisruptionBudget, covers on the cluster as
// it is now. It shows the author whether the check does what was meant.
type Coverage struct {
	Check   CheckID `json:"check"`
	State   State   `json:"state"`
	Message string  `json:"message"`
	// Targets is how many Machines or Nodes it covers.
	Targets      int       `json:"targets"`
	Limit        string    `json:"limit"`
	MaxUnhealthy int       `json:"maxUnhealthy"`
	Overlaps     []Shared  `json:"overlaps"`
	Findings     []Finding `json:"findings"`
}

// Shared is how many targets another check covers as well.
type Shared struct {
	Check   CheckID `json:"check"`
	Targets int     `json:"targets"`
}

// Finding is something about a check that its author may not have intended.
type Finding struct {
	// Warning: the check, or a rule of it, has no effect.
	Warning bool   `json:"warning"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The codes of findings. They are stable.
const (
	FoundNotEvaluated    = "NotEvaluated"
	FoundSelectsNothing  = "SelectsNothing"
	FoundLimitIsZero     = "LimitIsZero"
	FoundUnreachableRule = "UnreachableRule"
	// FoundUnknownCondition: no Node has a condition of the type that a rule names. Warning: it is nearly one that some have.
	FoundUnknownCondition = "UnknownCondition"
)

// Cover describes what each check and budget of a report covers, in the report's
// order, budgets last. nodes are those of the cluster.
func Cover(r Report, checks []Check, budgets []DisruptionBudget, nodes map[string]*Node) []Coverage {
	types := conditionTypes(nodes)
	written := map[CheckID]*Check{}
	for i := range checks {
		written[checks[i].ID()] = &checks[i]
	}
	shared := sharedTargets(&r)
	all := make([]Coverage, 0, len(r.Checks)+len(budgets))
	for i := range r.Checks {
		c := &r.Checks[i]
		v := Coverage{
			Check: c.ID(), State: c.State, Message: c.Message, Targets: len(c.Targets), Limit: c.Limit, MaxUnhealthy: c.MaxUnhealthy,
			Overlaps: []Shared{}, Findings: []Finding{},
		}
		if c.State != StateActive {
			v.Targets = len(c.idle)
		}
		for j, n := range shared[i] {
			v.Overlaps = append(v.Overlaps, Shared{r.Checks[j].ID(), n})
		}
		slices.SortFunc(v.Overlaps, func(a, b Shared) int { return a.Check.compare(b.Check) })
		v.Overlaps = v.Overlaps[:min(len(v.Overlaps), maxOverlaps)]
		v.examine(written[v.Check], c.LimitRoundsToZero())
		if c := written[v.Check]; c != nil && len(nodes) > 0 {
			v.examineTypes(c.Conditions, types)
		}
		all = append(all, v)
	}
	for i := range budgets {
		all = append(all, r.coverBudget(&budgets[i], i))
	}
	return all
}

// maxOverlaps is how many others a check is shown to share targets with. Thousands of checks may
// cover one target.
const maxOverlaps = 50

// sharedTargets counts, for each check by its index, the targets that it shares
// with the first other checks of each target.
func sharedTargets(r *Report) []map[int]int {
	covering := map[string][]int{}
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			s := r.Checks[i].Targets[j].Subject()
			covering[s] = append(covering[s], i)
		}
	}
	shared := make([]map[int]int, len(r.Checks))
	for i := range shared {
		shared[i] = map[int]int{}
	}
	for _, list := range covering {
		for _, a := range list {
			for _, b := range list[:min(len(list), maxOverlaps+1)] {
				if a != b {
					shared[a][b]++
				}
			}
		}
	}
	return shared
}

func (v *Coverage) find(warning bool, code, format string, args ...any) {
	v.Findings = append(v.Findings, Finding{warning, code, fmt.Sprintf(format, args...)})
}

// examine adds findings for what has no effect. zero says that the limit rounds to 0.
func (v *Coverage) examine(c *Check, zero string) {
	switch {
	case v.State != StateActive:
		v.find(v.State != StatePaused, FoundNotEvaluated, "the check is %s: %s", v.State, v.Message)
	case v.Targets == 0:
		v.find(true, FoundSelectsNothing, "the selector matches nothing in this cluster")
	case zero != "":
		v.find(true, FoundLimitIsZero, "%s", zero)
	}
	if c == nil {
		return
	}
	v.examineRules("unhealthyConditions", c.Conditions)
	v.examineRules("unhealthyMachineConditions", c.MachineConditions)
}

// examineRules finds the conditions that never take effect, because another one
// of the same type and status has a timeout that is not longer.
func (v *Coverage) examineRules(field string, rules []UnhealthyCondition) {
	for i, u := range rules {
		for j, o := range rules {
			if i == j || o.Type != u.Type || o.Status != u.Status || o.Timeout > u.Timeout || o.Timeout == u.Timeout && j > i {
				continue
			}
			v.find(true, FoundUnreachableRule, "%s[%d] (%s %s for %s) never takes effect: [%d] has the timeout %s",
				field, i, u.Type, u.Status, u.Timeout, j, o.Timeout)
			break
		}
	}
}

// conditionTypes are the types of conditions that any Node has, in order.
func conditionTypes(nodes map[string]*Node) []string {
	types := map[string]bool{}
	for _, n := range nodes {
		for _, c := range n.Conditions {
			types[c.text.Value().kind] = true
		}
	}
	return slices.Sorted(maps.Keys(types))
}

// someHave reports whether each of these types of conditions is that of some Node. Mostly the first one has all of them.
func someHave(nodes map[string]*Node, types map[string]bool) bool {
	for _, n := range nodes {
		for _, c := range n.Conditions {
			delete(types, c.text.Value().kind)
		}
		if len(types) == 0 {
			break
		}
	}
	return len(types) == 0
}

// examineTypes finds the conditions that no Node has, each type once. Another program may set one later; a slip never
// takes effect.
func (v *Coverage) examineTypes(rules []UnhealthyCondition, types []string) {
	told := map[string]bool{}
	for _, u := range rules {
		if slices.Contains(types, u.Type) || told[u.Type] {
			continue
		}
		told[u.Type] = true
		if meant := typo.Nearest(u.Type, types); meant != "" {
			v.find(true, FoundUnknownCondition, "no Node has the condition %s; did you mean %s?", u.Type, meant)
			continue
		}
		v.find(false, FoundUnknownCondition, "no Node has the condition %s now; does the program run that sets it?", u.Type)
	}
}

// coverBudget is the coverage of a budget. The report lists the budgets in the
// order in which they were given.
func (r *Report) coverBudget(b *DisruptionBudget, at int) Coverage {
	v := Coverage{
		Check: CheckID{Kind: DisruptionBudgetKind, APIVersion: FencedAPI, Name: b.Name, Source: b.Source},
		Limit: b.MaxUnavailable.String(), Overlaps: []Shared{}, Findings: []Finding{},
	}
	if at >= len(r.Budgets) {
		return v
	}
	found := &r.Budgets[at]
	v.State, v.Message, v.Targets, v.MaxUnhealthy = found.State, found.Message, found.Nodes, found.MaxUnavailable
	v.examine(nil, roundsToZero(v.Limit, v.MaxUnhealthy, v.Targets))
	return v
}
