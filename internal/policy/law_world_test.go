package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
)

// The laws of this file hold for every API family, alone and beside the others.

// drawWorld draws a cluster in which anything may stand beside anything.
func drawWorld(t *rapid.T) Snapshot {
	m := newModel(Rules{NodesCountAsMembers: rapid.Bool().Draw(t, "stand in"), ClusterRequired: rapid.Bool().Draw(t, "required"),
		Namespaces: of(t, "namespaces", nil, []string{"a"}), TrustNames: rapid.Bool().Draw(t, "saved"),
		DeleteControlPlaneMachines: rapid.Bool().Draw(t, "delete")})
	for _, c := range drawCluster(t, ledgerEpoch) {
		m.apply(c)
	}
	for range rapid.IntRange(0, 10).Draw(t, "more") {
		m.apply(drawChange(t, ledgerEpoch))
	}
	for _, c := range drawActing(t) {
		m.apply(c)
	}
	if odds(t, "run", 3) {
		m.runs = []OpenRun{{ID: "r", Node: of(t, "node", append([]string{"gone"}, worldNodes...)...), NodeLabels: of(t, "labels", worldLabels...)}}
	}
	if odds(t, "off", 3) {
		m.readsOff[of(t, "off", worldNodes...)] = true
	}
	return m.snapshot()
}

// drawActing draws, every other time, a sick Node and a check of it alone, which acts
// unless something stands in its way: among few objects drawn at random hardly any does.
func drawActing(t *rapid.T) []Change {
	if !rapid.Bool().Draw(t, "acting") {
		return nil
	}
	n := &Node{Name: "sick", UID: "u1", Labels: LabelsOf(labels.Set{"pool": "sick"}), Conditions: ConditionsOf([]Condition{{"Ready", "Unknown", ledgerEpoch.Add(-time.Hour)}})}
	c := &Check{APIVersion: FencedAPI, Kind: FencePolicyKind, Name: "acting", Source: "p.yaml:2", SelectsNodes: true, Strategy: PowerCycleHosts,
		Selector: labels.SelectorFromSet(n.Labels.Map()), Conditions: []UnhealthyCondition{{"Ready", "Unknown", time.Minute}}}
	return []Change{{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, Value: n}, {ID: ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name}, Value: c}}
}

func TestLawsOrderNeverMatters(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawWorld(t)
		before := Decide(s, ledgerEpoch)
		require.Equal(t, before, Decide(s, ledgerEpoch), "asking again changes nothing")
		s.Checks = rapid.Permutation(s.Checks).Draw(t, "checks")
		s.Machines = rapid.Permutation(s.Machines).Draw(t, "machines")
		s.Requests = rapid.Permutation(s.Requests).Draw(t, "requests")
		s.Pods = rapid.Permutation(s.Pods).Draw(t, "pods")
		s.Undecoded = rapid.Permutation(s.Undecoded).Draw(t, "undecoded")
		s.Errors = rapid.Permutation(s.Errors).Draw(t, "errors")
		s.Budgets = rapid.Permutation(s.Budgets).Draw(t, "budgets")
		require.Equal(t, visible(t, before), visible(t, Decide(s, ledgerEpoch)))
	})
}

// visible is what a report shows, without what follows the clock. Budgets come
// in the order in which they were given.
func visible(t *rapid.T, r Report) string {
	r.At = ledgerEpoch
	r.Checks = slices.Clone(r.Checks)
	for i := range r.Checks {
		c := &r.Checks[i]
		c.RecheckAfterSeconds, c.Targets = 0, slices.Clone(c.Targets)
		for j := range c.Targets {
			c.Targets[j].RecheckAfterSeconds = 0
		}
	}
	r.Budgets = slices.SortedFunc(slices.Values(r.Budgets), func(a, b BudgetReport) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	text := must.Do(json.Marshal(r))(t)
	return string(text)
}

// TestLawsNextCheckIsExact: at the next check something changes. That nothing
// does before is part of TestLedger.
func TestLawsNextCheckIsExact(t *testing.T) {
	ran := false
	law.CheckTested(t, func() bool { return ran }, func(t *rapid.T) {
		s := drawWorld(t)
		r := Decide(s, ledgerEpoch)
		next, ok := r.NextCheck()
		if !ok || slices.ContainsFunc(r.Checks, unremembered(s)) {
			return // no clock runs, or a storm has to be remembered first
		}
		require.True(t, next.After(ledgerEpoch))
		if slices.ContainsFunc(r.Checks, func(c CheckReport) bool { return slices.ContainsFunc(c.Targets, hidesClock) }) {
			return // time may change only whether the check in doubt has handed the target over
		}
		require.NotEqual(t, visible(t, r), visible(t, Decide(s, next)), "nothing changed at %s", next)
		ran = true
	})
}

// hidesClock reports whether time changes a target that is in doubt.
func hidesClock(t TargetReport) bool {
	return t.Verdict == Indeterminate && !t.reasonChangesAt.IsZero()
}

// newlyActing lists the targets of the checks of before that act only after. A
// target that merely stood in line, for the one control-plane host at a time or
// for the room of a budget, may move up.
func newlyActing(before, after Report) (list []string) {
	for i := range after.Checks {
		a := &after.Checks[i]
		at := slices.IndexFunc(before.Checks, func(c CheckReport) bool { return c.ID() == a.ID() })
		if at < 0 {
			continue
		}
		for _, t := range a.Targets {
			was := slices.IndexFunc(before.Checks[at].Targets, func(b TargetReport) bool {
				return b.Machine == t.Machine && b.Node == t.Node && group(b.MachineAPIVersion) == group(t.MachineAPIVersion)
			})
			if t.Acts() && was >= 0 && !inLine(&before.Checks[at].Targets[was]) {
				list = append(list, a.Name+" "+t.Subject())
			}
		}
	}
	return list
}

func inLine(t *TargetReport) bool {
	return t.Action != None && !slices.ContainsFunc(t.Refusals, func(r reason.Code) bool { return r != reason.ControlPlaneBusy && r != reason.Budget })
}

// TestLawsOneMoreUnhealthy makes one ready Node fall ill. No limit opens, except
// that a range opens when its minimum is reached, which is what it is for; and
// where no limit opened, no other target is acted on because of it.
func TestLawsOneMoreUnhealthy(t *testing.T) {
	ill := 0
	law.CheckTested(t, func() bool { return ill > 0 }, func(t *rapid.T) {
		s := drawWorld(t)
		var ready []string
		for name, n := range s.Nodes {
			if n.Ready() {
				ready = append(ready, name)
			}
		}
		if len(ready) == 0 {
			return // nobody to fall ill
		}
		slices.Sort(ready)
		ill++
		name := of(t, "ill", ready...)
		before := Decide(s, ledgerEpoch)
		sick := *s.Nodes[name]
		sick.Conditions = append(ConditionsOf([]Condition{{Type: "Ready", Status: "Unknown"}}), sick.Conditions[1:]...)
		s.Nodes[name] = &sick
		after := Decide(s, ledgerEpoch)
		opened := false
		for i := range before.Checks {
			b, a := &before.Checks[i], &after.Checks[i]
			assert.LessOrEqual(t, a.Healthy, b.Healthy)
			reached := slices.Contains(b.gate, reason.OutOfRange) && b.Expected-b.Healthy <= b.MaxUnhealthy
			if !reached {
				assert.False(t, a.Allowed && !b.Allowed, "one more unhealthy target opened the gate of %s", a.Name)
				assert.LessOrEqual(t, a.RemediationsAllowed, b.RemediationsAllowed)
			}
			opened = opened || reached
		}
		if opened {
			return
		}
		others := slices.DeleteFunc(newlyActing(before, after), func(s string) bool { return strings.HasSuffix(s, " "+name) })
		assert.Empty(t, others, "acted on because %s fell ill", name)
	})
}

// TestLawsMoreGuardsNeverAllowMore adds a check, a budget or a rule. One thing
// is left out on purpose: a MachineHealthCheck puts NodeHealthChecks out of
// force, or takes Nodes over from them; that is medik8s' own rule.
func TestLawsMoreGuardsNeverAllowMore(t *testing.T) {
	acted := false
	law.CheckTested(t, func() bool { return acted }, func(t *rapid.T) {
		s := drawWorld(t)
		before := Decide(s, ledgerEpoch)
		acted = acted || before.Acts()
		switch of(t, "guard", "check", "budget", "never", "request", "upgrade") {
		case "check":
			c := drawWorldCheck(t, ledgerEpoch)
			c.Name = "another"
			if c.family() == openShift && slices.ContainsFunc(s.Checks, func(c Check) bool { return c.family() == medik8s }) {
				return
			}
			s.Checks = append(s.Checks, *c)
		case "budget":
			s.Budgets = append(s.Budgets, DisruptionBudget{Name: "another", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(1)})
		case "never":
			s.Rules.ControlPlaneNever = true
		case "request":
			q := drawWorldRequest(t, ledgerEpoch)
			q.Owners, q.ControlPlane = nil, true
			s.Requests = append(s.Requests, *q)
		case "upgrade":
			s.Upgrading = "it is Progressing"
		}
		assert.Empty(t, newlyActing(before, Decide(s, ledgerEpoch)))
	})
}

// NextCheck is the first instant at which the passage of time changes the report;
// false if no timeout runs.
func (r *Report) NextCheck() (time.Time, bool) {
	var next time.Time
	for i := range r.Checks {
		c := &r.Checks[i]
		next = times.Sooner(next, c.Due)
		for j := range c.Targets {
			next = times.Sooner(next, c.Targets[j].nextChange())
		}
	}
	return next, !next.IsZero()
}
