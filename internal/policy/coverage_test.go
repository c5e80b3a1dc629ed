package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

func cover(s policy.Snapshot) []policy.Coverage {
	return policy.Cover(policy.Decide(s, epoch), s.Checks, s.Budgets)
}

func codes(c policy.Coverage) []string {
	list := []string{}
	for _, f := range c.Findings {
		list = append(list, f.Code)
	}
	return list
}

func TestCoverCountsOverlaps(t *testing.T) {
	other := powerCheck("elsewhere")
	other.Namespace = "other"
	s := sickWorld(time.Hour, powerCheck("b"), powerCheck("a"), other)
	all := cover(s)
	assert.Equal(t, "a", all[0].Check.Name, "in the report's order")
	assert.Equal(t, []policy.Shared{{Check: s.Checks[0].ID(), Targets: 1}}, all[0].Overlaps)
	assert.Empty(t, codes(all[0]))
	assert.Empty(t, all[2].Overlaps)
	assert.Equal(t, []string{policy.FoundSelectsNothing}, codes(all[2]))
}

func TestCoverFindsWhatHasNoEffect(t *testing.T) {
	c := powerCheck("c")
	percent := intstr.FromString("40%")
	c.MaxUnhealthy = &percent
	c.Conditions = []policy.UnhealthyCondition{
		{Type: "Ready", Status: "Unknown", Timeout: 5 * time.Minute},
		{Type: "Ready", Status: "Unknown", Timeout: time.Minute},
		{Type: "Ready", Status: "False", Timeout: 5 * time.Minute},
		{Type: "Ready", Status: "Unknown", Timeout: time.Minute},
	}
	found := cover(sickWorld(time.Hour, c))[0]
	assert.Equal(t, []string{policy.FoundLimitIsZero, policy.FoundUnreachableRule, policy.FoundUnreachableRule}, codes(found))
	assert.Contains(t, found.Findings[1].Message, "unhealthyConditions[0]")
	assert.Contains(t, found.Findings[2].Message, "unhealthyConditions[3]", "of two equal ones the later is idle")

	zero := intstr.FromString("0%")
	c.MaxUnhealthy, c.Conditions = &zero, c.Conditions[1:2]
	assert.Empty(t, codes(cover(sickWorld(time.Hour, c))[0]), "an explicit zero is meant")
}

func TestCoverTellsOfChecksThatAreNotEvaluated(t *testing.T) {
	c := powerCheck("c")
	c.Invalid = "spec.selector: what"
	found := cover(sickWorld(time.Hour, c))[0]
	assert.Equal(t, 1, found.Targets, "what it would cover")
	assert.True(t, found.Findings[0].Warning)
	c.Invalid, c.Paused = "", true
	assert.False(t, cover(sickWorld(time.Hour, c))[0].Findings[0].Warning, "a pause is on purpose")
}

func TestCoverBudgets(t *testing.T) {
	s := sickWorld(time.Hour)
	s.Budgets = []policy.DisruptionBudget{
		{Name: "all", Selector: labels.Everything(), MaxUnavailable: intstr.FromString("50%")},
		{Name: "none", Selector: labels.Nothing(), MaxUnavailable: intstr.FromInt32(1)},
		{Name: "bad", Selector: labels.Everything(), MaxUnavailable: intstr.FromString("many")},
	}
	all := cover(s)
	assert.Equal(t, []string{policy.FoundLimitIsZero}, codes(all[0]))
	assert.Equal(t, []string{policy.FoundSelectsNothing}, codes(all[1]))
	assert.Equal(t, []string{policy.FoundNotEvaluated}, codes(all[2]))
}

// A used up budget and a stricter check are named, with their numbers.
func TestExplainNamesBudgetAndOverlap(t *testing.T) {
	deleting := powerCheck("deleting")
	deleting.Strategy = policy.DeleteMachines
	s := sickWorld(time.Hour, deleting, powerCheck("power"))
	s.Machines[0].ControllerOwner = policy.Owner{Kind: "MachineSet", Name: "s", UID: "u"}
	s.Budgets = []policy.DisruptionBudget{{Name: "rack", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(0)}}
	r := policy.Decide(s, epoch)
	gates := policy.ExplainTarget(&r.Checks[0], &r.Checks[0].Targets[0])
	found := map[reason.Code]reason.Gate{}
	for _, g := range gates {
		found[g.Reason] = g
	}
	assert.Equal(t, "check ns/power", found[reason.Overlap].Source)
	assert.Equal(t, "1 of 1 unavailable", found[reason.Budget].Value)
	assert.Equal(t, "at most 0 (0)", found[reason.Budget].Threshold)
	assert.Equal(t, "DisruptionBudget rack", found[reason.Budget].Source)
}
