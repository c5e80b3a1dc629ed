package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

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
)

// Cover describes what each check and budget of a report covers, in the report's
// order, budgets last.
func Cover(r Report, checks []Check, budgets []DisruptionBudget) []Coverage {
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
		v.examine(written[v.Check])
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

// examine adds findings for what has no effect.
func (v *Coverage) examine(c *Check) {
	switch {
	case v.State != StateActive:
		v.find(v.State != StatePaused, FoundNotEvaluated, "the check is %s: %s", v.State, v.Message)
	case v.Targets == 0:
		v.find(true, FoundSelectsNothing, "the selector matches nothing in this cluster")
	case v.MaxUnhealthy == 0 && strings.HasSuffix(v.Limit, "%") && strings.Trim(v.Limit, "0") != "%":
		v.find(true, FoundLimitIsZero, "%s of %d allows 0 unhealthy targets, so nothing is ever remediated", v.Limit, v.Targets)
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
	v.examine(nil)
	return v
}

// Covers reports whether the check selects a target with this Machine and this
// Node, either of which may be nil.
func (c *Check) Covers(m *Machine, n *Node) bool {
	if c.SelectsNodes {
		return n != nil && c.Selector != nil && c.Selector.Matches(set(n.Labels))
	}
	return m != nil && c.covers(m)
}

// ID identifies the check of the report.
func (r *CheckReport) ID() CheckID {
	return CheckID{r.Kind, r.APIVersion, r.Namespace, r.Name, r.Source}
}

func (id CheckID) compare(o CheckID) int {
	return cmp.Or(
		strings.Compare(id.Namespace, o.Namespace), strings.Compare(id.Name, o.Name), strings.Compare(id.Kind, o.Kind),
		strings.Compare(id.APIVersion, o.APIVersion), strings.Compare(id.Source, o.Source))
}
