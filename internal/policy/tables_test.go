package policy

import (
	"fmt"
	"maps"
	"math"
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
	"github.com/fenced/fenced/test/law"
)

// TestLawsRemovedNodeCountsAsBefore: what a run does to its Node makes no room under any limit. It
// deletes the Node, which then registers without its labels and names, and every check counts the same. // I11
func TestLawsRemovedNodeCountsAsBefore(t *testing.T) {
	counted := 0
	law.CheckTested(t, func() bool { return counted > 0 }, func(t *rapid.T) {
		s := drawWorld(t)
		if len(s.Nodes) == 0 {
			return
		}
		n := s.Nodes[of(t, "removed", slices.Sorted(maps.Keys(s.Nodes))...)]
		if sick := s.Nodes["sick"]; sick != nil && rapid.Bool().Draw(t, "acted on") {
			n = sick // a check of Nodes selects it
		}
		w := tablesOf(&s)
		// A Machine that names the Node of another begins to count when it is gone, like one that was just made without a Node.
		s.Machines = slices.DeleteFunc(slices.Clone(s.Machines), func(m Machine) bool { return m.NodeName == n.Name && !w.Owns(&m, n) })
		r := OpenRun{ID: "r", Node: n.Name, ControlPlane: n.ControlPlane, TakesNoTurn: n.ControlPlane && !tablesOf(&s).TakesTurn(n, nil),
			SystemUUID: n.SystemUUID, NodeLabels: labels.Set{}, NodeNames: n.Names()} // those of a Node without labels are known, too
		maps.Copy(r.NodeLabels, n.Labels.Map())
		if m, _ := w.machineOf(n); m != nil {
			r.Machine, r.MachineAPI = m.Key(), m.APIVersion
		}
		s.OpenRuns = []OpenRun{r}
		before := Decide(s, ledgerEpoch)
		if delete(s.Nodes, n.Name); rapid.Bool().Draw(t, "registered") {
			bare := *n
			bare.Labels, bare.OpenShiftMachine, bare.ClusterMachine, bare.ProviderID = nil, "", "", ""
			s.Nodes[n.Name] = &bare
		}
		after := Decide(s, ledgerEpoch)
		for i := range before.Checks {
			b, a := &before.Checks[i], &after.Checks[i]
			assert.Equal(t, []int{b.Expected, b.Healthy, b.MinUnhealthy, b.MaxUnhealthy, b.RemediationsAllowed},
				[]int{a.Expected, a.Healthy, a.MinUnhealthy, a.MaxUnhealthy, a.RemediationsAllowed}, b.Name)
			assert.Equal(t, []any{b.State, b.Allowed}, []any{a.State, a.Allowed}, b.Name)
			for _, x := range a.Targets {
				if x.Node == n.Name {
					assert.Equal(t, reason.UnderRemediation, x.Reason)
					counted++
				}
			}
		}
		assert.Empty(t, newlyActing(before, after))
	})
}

// A host on which a run is open is refused under every name, in any order of the bytes of its system UUID: before the run
// has deleted its Node, and after. // I6, I9
func TestHostOfAnOpenRunIsRefusedUnderAnotherName(t *testing.T) {
	old, now, other := silentNode("old"), silentNode("new"), silentNode("other")
	old.SystemUUID, now.SystemUUID = "00112233-4455-6677-8899-aabbccddeeff", "33221100-5544-7766-8899-aabbccddeeff"
	w := newTrial(Rules{})
	w.apply(put(nodePolicy()), put(old), put(now), put(other))
	refusals := func(node string) []reason.Code {
		t.Helper()
		w.compare(t)
		return w.l.ActingOn(w.l.Counters()[0].ID(), node, w.now)[0].Refusals
	}
	require.Equal(t, []reason.Code{reason.DuplicateUUID}, refusals("new"))
	w.runs = []OpenRun{{ID: "r", Node: "old", SystemUUID: old.SystemUUID, NodeLabels: labels.Set{}}}
	w.l.SetRuns(w.now, w.runs)
	assert.Equal(t, []reason.Code{reason.UnderRemediation, reason.DuplicateUUID}, refusals("new"), "the first is what ends by itself")
	w.apply(Change{ID: put(old).ID})
	assert.Equal(t, []reason.Code{reason.UnderRemediation}, refusals("new"))
	assert.Empty(t, refusals("other"))
	assert.Contains(t, w.l.ActingOn(w.l.Counters()[0].ID(), "new", w.now)[0].Message, "run r is open on old, which has the same system UUID")
	w.runs = nil
	w.l.SetRuns(w.now, nil)
	assert.Empty(t, refusals("new"), "the run has ended")
}

// poolOf makes Nodes of one label; the first are silent.
func poolOf(name string, size, silent int) (list []Change) {
	for i := range size {
		n := &Node{Name: fmt.Sprintf("%s-%d", name, i), UID: "u", Labels: LabelsOf(labels.Set{"pool": name}),
			Conditions: ConditionsOf([]Condition{{"Ready", "True", ledgerEpoch.Add(-time.Hour)}})}
		if i < silent {
			n.Conditions = ConditionsOf([]Condition{{"Ready", "Unknown", ledgerEpoch.Add(-time.Hour)}})
		}
		list = append(list, put(n))
	}
	return list
}

// The Nodes that runs have deleted count in each form of a limit, as expected and as not healthy, so
// that neither a number nor a percentage has room for the next one. // I11
func TestNodesThatRunsDeletedCountInEveryLimit(t *testing.T) {
	policyCheck := func() *Check {
		c := nodePolicy()
		c.Selector = labels.SelectorFromSet(labels.Set{"pool": "a"})
		return c
	}
	nodeCheck := func() *Check {
		c := caseNodeCheck()
		c.Selector, c.Template, c.Escalation = policyCheck().Selector, &Template{FencedAPI, FencedRemediationKind + "Template", "a", "own"}, nil
		c.MinHealthy = nil
		return c
	}
	with := func(c *Check, change func(*Check)) *Check { change(c); return c }
	for name, c := range map[string]struct {
		check *Check
		code  reason.Code
	}{
		"a number":                     {with(policyCheck(), func(c *Check) { c.MaxUnhealthy = new(intstr.FromInt32(2)) }), reason.ShortCircuit},
		"a percentage":                 {with(policyCheck(), func(c *Check) { c.MaxUnhealthy = new(intstr.FromString("20%")) }), reason.ShortCircuit},
		"a range":                      {with(policyCheck(), func(c *Check) { c.UnhealthyRange = "[1-2]" }), reason.OutOfRange},
		"maxUnhealthy":                 {with(nodeCheck(), func(c *Check) { c.MaxUnhealthy = new(intstr.FromInt32(2)) }), reason.ShortCircuit},
		"maxUnhealthy as a percentage": {with(nodeCheck(), func(c *Check) { c.MaxUnhealthy = new(intstr.FromString("20%")) }), reason.ShortCircuit},
		"minHealthy as a percentage":   {with(nodeCheck(), func(c *Check) { c.MinHealthy = new(intstr.FromString("80%")) }), reason.ShortCircuit},
	} {
		for of, known := range map[string]map[string]string{"this pool": {"pool": "a"}, "another pool": {"pool": "b"}, "nobody knows": nil} {
			t.Run(name+", of "+of, func(t *testing.T) {
				size, counts := 10, 2
				if of == "another pool" {
					counts = 0
				}
				w := newTrial(Rules{})
				w.apply(append(poolOf("a", size-2, 1), put(c.check))...) // two Nodes of ten do not exist
				w.runs = []OpenRun{{ID: "r-1", Node: "x-1", NodeLabels: known}, {ID: "r-2", Node: "x-2", NodeLabels: known}}
				w.l.SetRuns(w.now, w.runs)
				w.compare(t)
				r := w.l.Report(w.now).Checks[0]
				assert.Equal(t, []int{size - 2 + counts, size - 3}, []int{r.Expected, r.Healthy})
				assert.Equal(t, counts == 0, r.Allowed)
				assert.Equal(t, counts > 0, slices.Contains(w.l.Acting(w.now)[0].Targets[0].Refusals, c.code))
				const why = "; 2 of them under remediation" // nobody sees these Nodes
				assert.Equal(t, counts > 0, strings.HasSuffix(r.Message, why), r.Message)
				assert.Equal(t, counts > 0, strings.HasSuffix(r.LimitGate().Value, why))

				w.runs = nil // the runs have ended, and nobody misses the Nodes any more
				w.l.SetRuns(w.now, nil)
				w.compare(t)
				require.True(t, w.l.Report(w.now).Checks[0].Allowed)
			})
		}
	}
}

// A Machine whose Node a run has deleted still exists: the checks that select Machines count it as not
// healthy, in each API family. // I11
func TestMachineWhoseNodeARunDeletedCounts(t *testing.T) {
	openShiftCheck, clusterAPICheck, fenceCheck := caseCheck(PowerCycleHosts), caseCheck(CreateRequests), nodePolicy()
	clusterAPICheck.APIVersion, clusterAPICheck.ClusterName = ClusterAPIV1Beta2, "k"
	fenceCheck.SelectsNodes, fenceCheck.Selector = false, labels.Everything()
	for name, c := range map[string]*Check{"OpenShift": openShiftCheck, "Cluster API": clusterAPICheck, "FencePolicy": fenceCheck} {
		t.Run(name, func(t *testing.T) {
			w := newTrial(Rules{Namespaces: []string{"a"}})
			w.apply(poolOf("n", 3, 0)...)
			api := OpenShiftMachineAPI
			for i := range 4 {
				m := caseMachine(fmt.Sprint("m-", i), fmt.Sprint("n-", i))
				if c.APIVersion == ClusterAPIV1Beta2 {
					api = ClusterAPIV1Beta2
					m.APIVersion, m.ClusterName, m.InfrastructureReadySince = ClusterAPIV1Beta2, "k", ledgerEpoch.Add(-time.Hour)
				}
				w.apply(put(m))
			}
			w.apply(put(c))
			w.runs = []OpenRun{{ID: "r", Node: "n-3", Machine: "a/m-3", MachineAPI: api, NodeLabels: labels.Set{}}}
			w.l.SetRuns(w.now, w.runs)
			w.compare(t)
			r := w.l.Report(w.now).Checks[0]
			require.Equal(t, StateActive, r.State, r.Message)
			assert.Equal(t, []int{4, 3}, []int{r.Expected, r.Healthy})
		})
	}
}

// The Machines without a Node count because one Node names a Machine in their namespace, which does not exist. They go on
// to count when a run has deleted that Node, and when it is back without what it named. // I11
func TestMachinesCountThoughARunDeletedTheNodeThatNamedTheirNamespace(t *testing.T) {
	fences := nodePolicy()
	fences.SelectsNodes, fences.Selector, fences.MaxUnhealthy = false, labels.Everything(), new(intstr.FromInt32(1))
	for name, names := range map[string]NodeNames{
		"a Machine of OpenShift":       {OpenShiftMachine: "a/gone"},
		"a Machine of the Cluster API": {ClusterMachine: "a/gone"},
		"a BareMetalHost":              {ProviderID: "metal3://a/h/gone"},
	} {
		t.Run(name, func(t *testing.T) {
			n := caseNode("n", "Ready", time.Hour)
			n.OpenShiftMachine, n.ClusterMachine, n.ProviderID = names.OpenShiftMachine, names.ClusterMachine, names.ProviderID
			w := newTrial(Rules{})
			w.apply(put(n), put(caseMachine("m-0", "")), put(caseMachine("m-1", "")), put(fences))
			counts := func() []int {
				t.Helper()
				w.compare(t)
				r := w.l.Report(w.now).Checks[0]
				return []int{r.Expected, r.Healthy}
			}
			require.Equal(t, []int{2, 0}, counts())
			w.runs = []OpenRun{{ID: "r", Node: "n", NodeLabels: labels.Set{}, NodeNames: n.Names()}}
			w.l.SetRuns(w.now, w.runs)
			w.apply(Change{ID: put(n).ID})
			assert.Equal(t, []int{2, 0}, counts(), "the Node is deleted")
			w.apply(put(caseNode("n", "Ready", 0)))
			assert.Equal(t, []int{2, 0}, counts(), "it is back, and names nothing yet")
			w.runs = []OpenRun{{ID: "r", Node: "n", NodeLabels: labels.Set{}}}
			w.l.SetRuns(w.now, w.runs)
			assert.Equal(t, []int{0, 0}, counts(), "the record does not have the names")
		})
	}
}

// A Node may name a Machine of each API family. The one on which the run is not goes on to count, too, when the Node is
// back without what it named. // I11
func TestOtherMachineOfARemovedNodeCounts(t *testing.T) {
	fences := nodePolicy()
	fences.SelectsNodes, fences.Selector, fences.MaxUnhealthy = false, labels.Everything(), new(intstr.FromInt32(1))
	n, other := caseNode("n", "Ready", time.Hour), caseMachine("o", "n")
	n.OpenShiftMachine, n.ClusterMachine = "a/m", "a/o"
	other.APIVersion = ClusterAPIV1Beta2
	w := newTrial(Rules{})
	w.runs = []OpenRun{{ID: "r", Node: "n", Machine: "a/m", MachineAPI: OpenShiftMachineAPI, NodeLabels: labels.Set{}, NodeNames: n.Names()}}
	w.l.SetRuns(w.now, w.runs)
	w.apply(put(n), put(caseMachine("m", "n")), put(other), put(fences))
	for _, c := range []Change{put(n), {ID: put(n).ID}, put(caseNode("n", "Ready", 0))} {
		w.apply(c)
		w.compare(t)
		assert.Equal(t, 2, w.l.Report(w.now).Checks[0].Expected)
	}
}

// Another machine may take the name of a Node that a run has deleted, with labels of its own. The checks
// that selected the deleted Node go on to count it. // I11
func TestNameOfARemovedNodeWithOtherLabelsMakesNoRoom(t *testing.T) {
	c := nodePolicy()
	c.Selector, c.MaxUnhealthy = labels.SelectorFromSet(labels.Set{"pool": "a"}), new(intstr.FromInt32(1))
	w := newTrial(Rules{})
	w.apply(append(poolOf("a", 9, 1), put(c))...)
	w.runs = []OpenRun{{ID: "r", Node: "x", NodeLabels: labels.Set{"pool": "a"}}}
	w.l.SetRuns(w.now, w.runs)
	w.compare(t)
	require.False(t, w.l.Report(w.now).Checks[0].Allowed)

	other := poolOf("b", 1, 0)[0]
	n := *other.Value.(*Node)
	n.Name, other.ID.Name, other.Value = "x", "x", &n
	w.apply(other)
	w.compare(t)
	r := w.l.Report(w.now).Checks[0]
	assert.Equal(t, []int{10, 8}, []int{r.Expected, r.Healthy})
	assert.False(t, r.Allowed)
}

// A Node that does not exist, and whose labels nobody knows, counts against each limit, and opens none: not even one that
// wants a number of unhealthy targets. // I11
func TestLawsUnknownNodeOpensNoGate(t *testing.T) {
	counted := 0
	law.CheckTested(t, func() bool { return counted > 0 }, func(t *rapid.T) {
		s := drawWorld(t)
		s.OpenRuns = nil
		ranged := nodePolicy()
		ranged.Name, ranged.Selector = "ranged", labels.Everything()
		ranged.UnhealthyRange = of(t, "range", "[1-3]", "[2-3]", "[3-9]")
		s.Checks = append(s.Checks, *ranged)
		before := Decide(s, ledgerEpoch)
		s.OpenRuns = []OpenRun{{ID: "r", Node: "nobody knows"}}
		after := Decide(s, ledgerEpoch)
		for i := range before.Checks {
			b, a := &before.Checks[i], &after.Checks[i]
			if assert.False(t, a.Allowed && !b.Allowed, "%s: %s, then %s", b.Name, b.Message, a.Message); a.Expected > b.Expected && b.MinUnhealthy > 0 {
				counted++
			}
		}
		assert.Empty(t, newlyActing(before, after))
	})
}

// What shows a live kubelet is that its Lease changes, by the clock of whoever reads it. The times that others
// wrote may be any. // I4
func TestRenewedUntil(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	minute, never, year2999 := time.Minute, time.Time{}, time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		status string
		since  time.Time
		lease  Lease
		alive  bool
	}{
		"Ready is not Unknown":                      {"False", ago(5 * minute), Lease{RenewTime: ago(0), Since: ago(0), Before: ago(minute)}, false},
		"the only version, renewed since":           {"Unknown", ago(5 * minute), Lease{RenewTime: ago(10), Since: ago(0), Before: never}, true},
		"the only version, renewed before":          {"Unknown", ago(5 * minute), Lease{RenewTime: ago(6 * minute), Since: ago(0), Before: never}, false},
		"the year 2999, just read":                  {"Unknown", ago(5 * minute), Lease{RenewTime: year2999, Since: ago(0), Before: never}, true},
		"the year 2999, unchanged for a minute":     {"Unknown", ago(5 * minute), Lease{RenewTime: year2999, Since: ago(minute), Before: never}, false},
		"an old time, and it changed since":         {"Unknown", ago(5 * minute), Lease{RenewTime: ago(time.Hour), Since: ago(minute / 2), Before: ago(minute)}, true},
		"an old time, and the last change is old":   {"Unknown", ago(5 * minute), Lease{RenewTime: ago(time.Hour), Since: ago(minute), Before: ago(2 * minute)}, false},
		"it changed before or after, nobody knows":  {"Unknown", ago(5 * minute), Lease{RenewTime: ago(time.Hour), Since: ago(0), Before: ago(6 * minute)}, false},
		"a condition of the year 2999, and changes": {"Unknown", year2999, Lease{RenewTime: ago(time.Hour), Since: ago(0), Before: ago(minute)}, true},
		"a condition of the year 2999, standing":    {"Unknown", year2999, Lease{RenewTime: year2999, Since: ago(minute), Before: never}, false},
		"a saved state":                             {"Unknown", ago(5 * minute), Lease{RenewTime: ago(minute / 2)}, true},
		"a saved state, old":                        {"Unknown", ago(5 * minute), Lease{RenewTime: ago(minute)}, false},
	} {
		n := &Node{Conditions: ConditionsOf([]Condition{{Type: "Ready", Status: c.status, LastTransition: c.since}})}
		assert.Equal(t, c.alive, noon.Before(RenewedUntil(n, c.lease, noon)), name)
	}
	assert.True(t, RenewedUntil(nil, Lease{}, noon).IsZero())
}

// The longest timeout that can be written ends in the future. One that seems to have ended would be due again at once, and keep the daemon busy
// with nothing else; and it is no negative number of seconds, also from a time to come on, which a kubelet may write.
func TestLongestTimeoutEndsInTheFuture(t *testing.T) {
	for name, since := range map[string]time.Time{"long ago": ledgerEpoch.Add(-time.Hour), "to come": latestTime} {
		p, n := nodePolicy(), silentNode("n")
		p.Conditions[0].Timeout = math.MaxInt64
		n.Conditions = ConditionsOf([]Condition{{Type: "Ready", Status: "Unknown", LastTransition: since}})
		l := ledgerWith(Rules{}, put(p), put(n))
		assert.True(t, l.Next.After(ledgerEpoch), "%s: %s", name, l.Next)
		r := l.Report(ledgerEpoch)
		assert.Equal(t, Pending, r.Checks[0].Targets[0].Verdict, name)
		assert.Positive(t, r.Checks[0].Targets[0].RecheckAfterSeconds, name)
		assert.Positive(t, r.Checks[0].RecheckAfterSeconds, name)
	}
}

// The longest timeout that can be written is no negative number of seconds.
func TestLongestTimeoutInSeconds(t *testing.T) {
	assert.Equal(t, int(math.MaxInt64/time.Second)+1, wholeSeconds(math.MaxInt64))
	assert.Equal(t, 2, wholeSeconds(time.Second+1))
	assert.Equal(t, 1, wholeSeconds(time.Second))
	assert.Zero(t, wholeSeconds(0))
}
