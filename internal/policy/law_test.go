package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/law"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// drawSnapshot makes a small world in which every rule can fire.
func drawSnapshot(t *rapid.T) policy.Snapshot {
	s := policy.Snapshot{
		Nodes: map[string]*policy.Node{}, Leases: map[string]policy.Lease{},
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "checks") {
		s.Checks = append(s.Checks, drawCheck(t, i))
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "machines") {
		m := drawMachine(t, i)
		s.Machines = append(s.Machines, m)
		if m.NodeName != "" && rapid.IntRange(0, 5).Draw(t, "exists") > 0 {
			n := drawNode(t, m.NodeName)
			s.Nodes[n.Name] = &n
		}
		if rapid.IntRange(0, 9).Draw(t, "run") == 0 {
			s.OpenRuns = append(s.OpenRuns, policy.OpenRun{ID: "r1", Machine: m.Key(), MachineAPI: m.APIVersion, Node: m.NodeName})
		}
		if rapid.Bool().Draw(t, "lease") {
			s.Leases[m.NodeName] = policy.Lease{RenewTime: drawTime(t, "renew")}
		}
	}
	return s
}

func drawCheck(t *rapid.T, i int) policy.Check {
	c := policy.Check{
		Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI,
		Namespace: "ns", Name: fmt.Sprintf("c-%d", i),
		Conditions:     []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
		StartupTimeout: rapid.SampledFrom([]time.Duration{0, 10 * time.Minute}).Draw(t, "startup"),
		Strategy:       rapid.SampledFrom([]policy.Strategy{policy.DeleteMachines, policy.PowerCycleHosts}).Draw(t, "strategy"),
		Paused:         rapid.IntRange(0, 9).Draw(t, "paused") == 0,
		Selector:       labels.Everything(),
	}
	if rapid.Bool().Draw(t, "selective") {
		c.Selector = labels.SelectorFromSet(labels.Set{"rack": "r1"})
	}
	if limit := rapid.SampledFrom([]string{"", "0", "1", "2", "40%", "150%", "-1", "x"}).Draw(t, "limit"); limit != "" {
		parsed := intstr.FromString(limit)
		c.MaxUnhealthy = &parsed
	}
	return c
}

func drawMachine(t *rapid.T, i int) policy.Machine {
	m := policy.Machine{
		APIVersion: policy.OpenShiftMachineAPI,
		Namespace:  "ns", Name: fmt.Sprintf("m-%d", i),
		Labels:                       map[string]string{"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")},
		Phase:                        rapid.SampledFrom([]string{"Running", "Running", "Running", "Failed"}).Draw(t, "phase"),
		Deleting:                     rapid.IntRange(0, 5).Draw(t, "deleting") == 0,
		LastUpdated:                  drawTime(t, "updated"),
		ControlPlane:                 rapid.IntRange(0, 3).Draw(t, "role") == 0,
		ExternalRemediationRequested: rapid.IntRange(0, 5).Draw(t, "requested") == 0,
	}
	if rapid.IntRange(0, 4).Draw(t, "joined") > 0 {
		m.NodeName = fmt.Sprintf("n-%d", i)
	}
	if rapid.Bool().Draw(t, "owned") {
		m.ControllerOwner = policy.Owner{Kind: "MachineSet", Name: "ms", UID: "u"}
	}
	return m
}

func drawNode(t *rapid.T, name string) policy.Node {
	return policy.Node{Name: name, Conditions: policy.ConditionsOf([]policy.Condition{{
		Type: "Ready", Status: rapid.SampledFrom([]string{"True", "Unknown"}).Draw(t, "ready"), LastTransition: drawTime(t, "since"),
	}})}
}

func drawTime(t *rapid.T, label string) time.Time {
	ago := rapid.SampledFrom([]time.Duration{-time.Minute, 0, time.Second, time.Minute, 2 * time.Minute, time.Hour}).Draw(t, label)
	return epoch.Add(-ago)
}

// worlds are small clusters of one API family each; law_world_test.go mixes them.
var worlds = map[string]func(*rapid.T) policy.Snapshot{
	"OpenShift": drawSnapshot, "Cluster API": drawClusterWorld, "medik8s": drawNodes,
}

// TestLawOrder: asking again changes nothing, nor does the order of objects.
func TestLawOrder(t *testing.T) {
	for name, draw := range worlds {
		t.Run(name, func(t *testing.T) {
			law.Check(t, func(t *rapid.T) {
				s := draw(t)
				before := policy.Decide(s, epoch)
				assert.Equal(t, before, policy.Decide(s, epoch), "asking again changes nothing")
				s.Machines = rapid.Permutation(s.Machines).Draw(t, "machines'")
				s.Checks = rapid.Permutation(s.Checks).Draw(t, "checks'")
				s.Requests = rapid.Permutation(s.Requests).Draw(t, "requests'")
				assert.Equal(t, before, policy.Decide(s, epoch), "the order of objects never matters")
			})
		})
	}
}

// TestLawOneMoreUnhealthy makes one healthy target unhealthy: no gate opens,
// and nothing that was refused by it becomes allowed.
func TestLawOneMoreUnhealthy(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		before := policy.Decide(s, epoch)
		var names []string
		for name, n := range s.Nodes {
			if n.Ready() {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			t.Skip("nobody to fall ill")
		}
		slices.Sort(names)
		name := rapid.SampledFrom(names).Draw(t, "ill")
		s.Nodes[name] = &policy.Node{Name: name, Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown"}})}
		after := policy.Decide(s, epoch)
		for i := range before.Checks {
			b, a := before.Checks[i], after.Checks[i]
			assert.LessOrEqual(t, a.Healthy, b.Healthy)
			assert.LessOrEqual(t, a.RemediationsAllowed, b.RemediationsAllowed)
			assert.False(t, a.Allowed && !b.Allowed, "one more unhealthy target opened the gate of %s", a.Name)
			for j := range a.Targets {
				if a.Targets[j].Node != name {
					assert.False(t, a.Targets[j].Acts() && !b.Targets[j].Acts(), "%s is acted on because %s fell ill", a.Targets[j].Machine, name)
				}
			}
		}
	})
}

// TestLawNextCheck: before the next check nothing changes by time alone, neither
// a verdict nor a word, and at it something does.
func TestLawNextCheck(t *testing.T) {
	for name, draw := range worlds {
		t.Run(name, func(t *testing.T) {
			law.Check(t, func(t *rapid.T) {
				s := draw(t)
				r := policy.Decide(s, epoch)
				next, ok := r.NextCheck()
				if !ok {
					t.Skip("no clock runs")
				}
				assert.True(t, next.After(epoch))
				assert.Equal(t, verdicts(r), verdicts(policy.Decide(s, next.Add(-1))), "something changed before %s", next)
				assert.NotEqual(t, verdicts(r), verdicts(policy.Decide(s, next)), "nothing changed at %s", next)
			})
		})
	}
}

func verdicts(r policy.Report) (list []string) {
	for _, c := range r.Checks {
		list = append(list, c.Message, fmt.Sprint(c.Storm))
		for _, t := range c.Targets {
			list = append(list, fmt.Sprint(c.Name, t.Machine, t.Node, t.Verdict, t.Reason, t.Message, t.Refusals, t.Template))
		}
	}
	return list
}

// TestLawJudge: the engine's last look agrees with Decide unless something was
// added that one target does not show.
func TestLawJudge(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		s.OpenRuns = nil
		for _, c := range s.Checks {
			alone := s
			alone.Checks = []policy.Check{c}
			for _, want := range policy.Decide(alone, epoch).Checks[0].Targets {
				i := slices.IndexFunc(s.Machines, func(m policy.Machine) bool { return m.Key() == want.Machine })
				m := s.Machines[i]
				n := s.Nodes[m.NodeName]
				got := policy.Evaluate(&c, policy.CheckContext{}, policy.Subject{Machine: &m, Node: n, Gone: n == nil && m.NodeName != ""}, epoch)
				assert.Equal(t, want.Verdict, got.Verdict)
				assert.Equal(t, want.Action, got.Action)
				assert.Subset(t, want.Refusals, got.Refusals)
			}
		}
	})
}

func drawBudgets(t *rapid.T) (list []policy.DisruptionBudget) {
	for i := range rapid.IntRange(1, 3).Draw(t, "budgets") {
		b := policy.DisruptionBudget{
			Name: fmt.Sprintf("b-%d", i), Selector: labels.Everything(),
			MaxUnavailable: intstr.Parse(rapid.SampledFrom([]string{"0", "1", "2", "50%", "100%"}).Draw(t, "max")),
		}
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			b.Selector, b.Invalid = nil, "spec.nodeSelector: x"
		case 1, 2:
			b.Selector = labels.SelectorFromSet(labels.Set{"rack": "r1"})
		}
		list = append(list, b)
	}
	return list
}

// drawSickWorld is a world in which Nodes may be sick and still Ready.
func drawSickWorld(t *rapid.T) policy.Snapshot {
	s := drawSnapshot(t)
	own := policy.Check{
		Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "own", Selector: labels.Everything(), SelectsNodes: true,
		Strategy:   policy.PowerCycleHosts,
		Conditions: []policy.UnhealthyCondition{{Type: "Disk", Status: "True"}},
	}
	s.Checks = append(s.Checks, own)
	for i := range rapid.IntRange(0, 4).Draw(t, "more") {
		n := drawNode(t, fmt.Sprintf("s-%d", i))
		n.Conditions = append(n.Conditions, policy.ConditionsOf([]policy.Condition{{Type: "Disk", Status: "True"}})...)
		n.Labels = policy.LabelsOf(map[string]string{"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")})
		s.Nodes[n.Name] = &n
	}
	return s
}

func acting(r policy.Report) map[string]bool {
	list := map[string]bool{}
	for _, c := range r.Checks {
		for _, t := range c.Targets {
			if t.Acts() {
				list[fmt.Sprint(c.ID(), t.Machine, " ", t.Node)] = true
			}
		}
	}
	return list
}

// TestLawBudgetNeverAllowsMore: what a budget lets through goes on without it,
// too. A control-plane host may come first because another one was held back.
func TestLawBudgetNeverAllowsMore(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawSickWorld(t)
		for i := range s.Machines {
			s.Machines[i].ControlPlane = false
		}
		without := acting(policy.Decide(s, epoch))
		s.Budgets = drawBudgets(t)
		for target := range acting(policy.Decide(s, epoch)) {
			assert.True(t, without[target], "%s only acts under the budgets", target)
		}
	})
}

// TestLawBudgetHolds: if everything that may go on did so at once, no budget
// would be exceeded by it.
func TestLawBudgetHolds(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawSickWorld(t)
		s.Budgets = drawBudgets(t)
		r := policy.Decide(s, epoch)
		for i, b := range s.Budgets {
			taken := map[string]bool{}
			for _, c := range r.Checks {
				for _, target := range c.Targets {
					n := s.Nodes[target.Node]
					if target.Acts() && n != nil && n.Ready() && (b.Selector == nil || b.Selector.Matches(n.Labels)) {
						taken[n.Name] = true
					}
				}
			}
			if len(taken) > 0 {
				assert.Equal(t, policy.StateActive, r.Budgets[i].State)
				assert.LessOrEqual(t, r.Budgets[i].Unavailable+len(taken), r.Budgets[i].MaxUnavailable, b.Name)
			}
		}
	})
}

func TestLawBudgetOrder(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawSickWorld(t)
		s.Budgets = drawBudgets(t)
		before := policy.Decide(s, epoch)
		s.Budgets = rapid.Permutation(s.Budgets).Draw(t, "budgets'")
		assert.Equal(t, before.Checks, policy.Decide(s, epoch).Checks, "the order of budgets never matters")
	})
}
