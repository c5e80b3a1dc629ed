package policy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/law"
)

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
		n.Conditions = append(n.Conditions, policy.Condition{Type: "Disk", Status: "True"})
		n.Labels = map[string]string{"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")}
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
					if target.Acts() && n != nil && n.Ready() && (b.Selector == nil || b.Selector.Matches(labels.Set(n.Labels))) {
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
