package policy_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/must"
)

var update = flag.Bool("update", false, "rewrite the want parts of the corpus")

// TestCorpus judges every case of testdata: objects and a time in, one line for
// each check and target out. The first line of a case says why it exists.
func TestCorpus(t *testing.T) {
	files := must.Do(filepath.Glob("testdata/*.txtar"))(t)
	require.GreaterOrEqual(t, len(files), 80)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive := must.Do(txtar.ParseFile(file))(t)
			require.Regexp(t, `^# .+: `, string(archive.Comment), "a case begins with its rule and why")
			got := caseOutput(t, archive)
			want := part(t, archive, "want")
			if *update {
				want.Data = []byte(got)
				require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o644))
			}
			assert.Equal(t, string(want.Data), got)
		})
	}
}

// caseRules are the settings that a case may have.
var caseRules = map[string]func(*policy.Rules){
	"machineFailureReason": func(r *policy.Rules) { r.MachineFailureReason = true },
	"waitForUpgrade":       func(r *policy.Rules) { r.WaitForUpgrade = true },
}

// loadCase decodes a case's objects; broken documents are part of some cases.
func loadCase(t *testing.T, archive *txtar.Archive) (policy.Snapshot, time.Time) {
	t.Helper()
	at := must.Do(time.Parse(time.RFC3339, strings.TrimSpace(string(part(t, archive, "at").Data))))(t)
	var objects manifest.Objects
	require.NoError(t, objects.Add("objects.yaml", part(t, archive, "objects.yaml").Data))
	snapshot := objects.Snapshot()
	snapshot.ReadsOff = map[string]bool{}
	for _, f := range archive.Files {
		if f.Name == "reads-off" { // what no object says
			for node := range strings.FieldsSeq(string(f.Data)) {
				snapshot.ReadsOff[node] = true
			}
		}
		if f.Name == "rules" { // settings of the daemon
			for rule := range strings.FieldsSeq(string(f.Data)) {
				set, ok := caseRules[rule]
				require.True(t, ok, "unknown rule %s", rule)
				set(&snapshot.Rules)
			}
		}
	}
	return snapshot, at
}

func caseOutput(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	snapshot, at := loadCase(t, archive)
	return summary(policy.Decide(snapshot, at))
}

func part(t *testing.T, archive *txtar.Archive, name string) *txtar.File {
	t.Helper()
	for i := range archive.Files {
		if archive.Files[i].Name == name {
			return &archive.Files[i]
		}
	}
	require.Failf(t, "part is missing", "%s", name)
	return nil
}

// summary is a report as a reviewer reads it.
func summary(r policy.Report) string {
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%s %s/%s %s", c.Kind, c.Namespace, c.Name, c.State)
		if c.State == policy.StateActive {
			fmt.Fprintf(&b, " healthy=%d/%d limit=%s=%d allowed=%t more=%d recheck=%d",
				c.Healthy, c.Expected, c.Limit, c.MaxUnhealthy, c.Allowed, c.RemediationsAllowed, c.RecheckAfterSeconds)
		}
		if c.Kind == policy.FencePolicyKind && !c.Due.IsZero() {
			fmt.Fprintf(&b, " due=%s", c.Due.Format(time.RFC3339))
		}
		fmt.Fprintln(&b, note(c.Message))
		for _, t := range c.Targets {
			code := t.Reason
			if code == "" {
				code = "-"
			}
			fmt.Fprintf(&b, "  %s node=%s %s %s %s %v recheck=%d%s\n",
				t.Machine, t.Node, t.Verdict, code, t.Action, t.Refusals, t.RecheckAfterSeconds, note(t.Message))
		}
	}
	for _, d := range r.Budgets {
		fmt.Fprintf(&b, "%s %s %s", policy.DisruptionBudgetKind, d.Name, d.State)
		if d.State == policy.StateActive {
			fmt.Fprintf(&b, " unavailable=%d/%d limit=%s=%d", d.Unavailable, d.Nodes, d.Limit, d.MaxUnavailable)
		}
		fmt.Fprintln(&b, note(d.Message))
	}
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "error %s%s\n", e.Object, note(e.Message))
	}
	return b.String()
}

func note(message string) string {
	if message == "" {
		return ""
	}
	return "  # " + message
}

func powerCheck(name string) policy.Check {
	return policy.Check{
		Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: name,
		Selector: labels.Everything(), StartupTimeout: 10 * time.Minute, Strategy: policy.PowerCycleHosts,
		Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
	}
}

// sickWorld is one Machine whose Node has been Unknown for so long.
func sickWorld(ago time.Duration, checks ...policy.Check) policy.Snapshot {
	return policy.Snapshot{
		Checks:   checks,
		Machines: []policy.Machine{{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-1", UID: "mu", NodeName: "n-1"}},
		Nodes: map[string]*policy.Node{"n-1": {Name: "n-1", UID: "nu", OpenShiftMachine: "ns/m-1", Conditions: policy.ConditionsOf([]policy.Condition{
			{Type: "Ready", Status: "Unknown", LastTransition: epoch.Add(-ago)}})}},
	}
}

func explain(s policy.Snapshot, node string) []reason.Code {
	return refusals(policy.Explain(policy.Decide(s, epoch), node))
}

func TestExplainActs(t *testing.T) {
	s := sickWorld(time.Hour, powerCheck("c"))
	assert.Empty(t, explain(s, "n-1"))
	s.Machines[0].ExternalRemediationRequested = true
	assert.Empty(t, explain(s, "n-1"), "the daemon carries the request out")
}

func TestExplainRefusals(t *testing.T) {
	zero := intstr.FromInt32(0)
	stopped := powerCheck("c")
	stopped.MaxUnhealthy = &zero
	assert.Equal(t, []reason.Code{reason.ShortCircuit}, explain(sickWorld(time.Hour, stopped), "n-1"), "once, as the limit's gate")

	s := sickWorld(time.Hour, powerCheck("c"))
	s.Machines[0].ControlPlane, s.Machines[0].Deleting = true, true
	assert.Equal(t, []reason.Code{reason.Deleting, reason.QuorumUnknown}, explain(s, "n-1"))
}

// What refuses because of other objects names them.
func TestExplainNamesWhatRefuses(t *testing.T) {
	s := sickWorld(time.Hour, powerCheck("c"))
	s.Nodes["n-1"].SystemUUID = "33221100-5544-7766-8899-AABBCCDDEEFF"
	s.Nodes["n-2"] = &policy.Node{Name: "n-2", SystemUUID: "00112233-4455-6677-8899-aabbccddeeff"}
	s.Machines[0].Annotations = map[string]string{policy.HostAnnotation: "ns/h-1"}
	s.Hosts = []policy.Host{{Namespace: "ns", Name: "h-1", Online: true, Annotations: map[string]string{"reboot.metal3.io/capm3": "", policy.PowerLockAnnotation: ""}}}
	found := map[string]string{}
	for _, g := range policy.Explain(policy.Decide(s, epoch), "n-1") {
		if !g.Pass && g.Reason != reason.NotUnhealthy {
			found[g.Name+" "+string(g.Reason)] = g.Value
		}
	}
	assert.Len(t, found, 2)
	assert.Contains(t, found["uniqueUUID DuplicateUUID"], "Node n-2 has the same system UUID")
	assert.Contains(t, found["contested Contested"], "BareMetalHost ns/h-1 carries the power request reboot.metal3.io/capm3")
}

func TestExplainWaits(t *testing.T) {
	s := sickWorld(40*time.Second, powerCheck("c"))
	gates := policy.Explain(policy.Decide(s, epoch), "n-1")
	assert.Equal(t, []reason.Code{reason.NotUnhealthy}, refusals(gates))
	assert.Equal(t, epoch.Add(20*time.Second+1), gates[1].Until, "to the instant")

	s = sickWorld(time.Hour, powerCheck("c"))
	s.Leases = map[string]policy.Lease{"n-1": {RenewTime: epoch.Add(-10 * time.Second)}}
	gates = policy.Explain(policy.Decide(s, epoch), "n-1")
	assert.Equal(t, []reason.Code{reason.NodeAlive}, refusals(gates))
	assert.Equal(t, epoch.Add(50*time.Second), gates[3].Until)
}

func TestExplainUnjudged(t *testing.T) {
	broken := powerCheck("broken")
	broken.Invalid = `spec.nodeStartupTimeout: "-5m" is negative`
	unread := powerCheck("unread")
	unread.Selector, unread.Invalid = nil, "spec.selector: what"
	paused := powerCheck("paused")
	paused.Paused = true
	other := powerCheck("elsewhere")
	other.Namespace, other.Invalid = "other", "x"

	assert.Equal(t, []reason.Code{reason.NotCovered}, explain(sickWorld(time.Hour), "n-1"))
	assert.Equal(t, []reason.Code{reason.NotCovered}, explain(sickWorld(time.Hour, other), "n-1"))
	assert.Equal(t, []reason.Code{reason.NotCovered}, explain(sickWorld(time.Hour, powerCheck("c")), "n-9"))
	assert.Equal(t, []reason.Code{reason.InvalidCheck}, explain(sickWorld(time.Hour, broken), "n-1"))
	assert.Equal(t, []reason.Code{reason.InvalidCheck}, explain(sickWorld(time.Hour, unread), "n-1"), "it may cover the Node")
	assert.Equal(t, []reason.Code{reason.Paused}, explain(sickWorld(time.Hour, paused), "n-1"))
	assert.Empty(t, explain(sickWorld(time.Hour, broken, powerCheck("c")), "n-1"), "another check judges it")
}

func TestExplainNearest(t *testing.T) {
	slow := powerCheck("a-slow")
	slow.Conditions[0].Timeout = 2 * time.Hour
	s := sickWorld(time.Hour, slow, powerCheck("b-fast"))
	assert.Equal(t, "check ns/b-fast", policy.Explain(policy.Decide(s, epoch), "n-1")[0].Source, "the one that acts")
	slower := powerCheck("b-slower")
	slower.Conditions[0].Timeout = 3 * time.Hour
	s = sickWorld(time.Hour, slower, slow)
	assert.Equal(t, "check ns/a-slow", policy.Explain(policy.Decide(s, epoch), "n-1")[0].Source, "the one that waits less")
}

func TestJudgeDetail(t *testing.T) {
	s := sickWorld(time.Hour, powerCheck("c"))
	r := policy.Decide(s, epoch)
	assert.True(t, r.Acts())
	target := r.Checks[0].Targets[0]
	assert.Equal(t, "check ns/c: Ready is Unknown since 2025-12-31T23:00:00Z, longer than 1m0s", target.Trigger)
	assert.Equal(t, "mu", target.MachineUID)
	assert.Equal(t, "nu", target.NodeUID)
	assert.Equal(t, epoch.Add(-time.Hour), target.Since)
	assert.Equal(t, time.Minute, target.Timeout)
	assert.Equal(t, 10*time.Minute, target.StartupTimeout)
}

func TestOpenRun(t *testing.T) {
	s := sickWorld(time.Hour, powerCheck("c"))
	s.OpenRuns = []policy.OpenRun{{ID: "r1", Machine: "ns/m-1", MachineAPI: s.Machines[0].APIVersion, Node: "n-1"}}
	assert.Equal(t, []reason.Code{reason.NotUnhealthy}, explain(s, "n-1"), "a run is open on it")
}

// TestJudgeUnjudged: the last look before an action honours a pause.
func TestJudgeUnjudged(t *testing.T) {
	s := sickWorld(time.Hour)
	c := powerCheck("c")
	c.Paused = true
	got := policy.Evaluate(&c, policy.CheckContext{}, policy.Subject{Machine: &s.Machines[0], Node: s.Nodes["n-1"]}, epoch)
	assert.Equal(t, policy.Skipped, got.Verdict)
	assert.Equal(t, reason.Paused, got.Reason)
	assert.Equal(t, policy.None, got.Action)
	c = powerCheck("c")
	got = policy.Evaluate(&c, policy.CheckContext{}, policy.Subject{Machine: &s.Machines[0]}, epoch)
	assert.Equal(t, policy.Indeterminate, got.Verdict, "a Node nobody could read is not gone")
}

// refusals lists the reasons of the gates that do not hold, in their order.
func refusals(gates []reason.Gate) (list []reason.Code) {
	for _, g := range gates {
		if !g.Pass {
			list = append(list, g.Reason)
		}
	}
	return list
}

// The message of a target is short, whatever conditions a check and an object have: each target of each check keeps one.
func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 2000)
	c := powerCheck("c")
	c.Conditions = []policy.UnhealthyCondition{{Type: long, Status: "True"}}
	s := sickWorld(time.Hour, c)
	s.Nodes["n-1"].Conditions = policy.ConditionsOf([]policy.Condition{{Type: long, Status: "True", LastTransition: epoch.Add(-time.Hour)}})
	message := func() string {
		r := policy.Decide(s, epoch)
		require.Equal(t, policy.Unhealthy, r.Checks[0].Targets[0].Verdict)
		return r.Checks[0].Targets[0].Message
	}
	assert.LessOrEqual(t, len(message()), 1024)
	assert.True(t, strings.HasPrefix(message(), "üü"))

	capi := &s.Checks[0]
	capi.APIVersion, capi.ClusterName, capi.Conditions = policy.ClusterAPIV1Beta2, "c", nil
	m := &s.Machines[0]
	m.APIVersion, m.ClusterName = policy.ClusterAPIV1Beta2, "c"
	for i := range 256 {
		kind := fmt.Sprintf("Condition%d", i)
		capi.MachineConditions = append(capi.MachineConditions, policy.UnhealthyCondition{Type: kind, Status: "True"})
		m.Conditions = append(m.Conditions, policy.Condition{Type: kind, Status: "True", LastTransition: epoch.Add(-time.Hour)})
	}
	assert.Contains(t, message(), "Condition4 ")
	assert.NotContains(t, message(), "Condition5 ")
	capi.MachineConditions[0].Type, m.Conditions[0].Type = long, long
	assert.LessOrEqual(t, len(message()), 1024)
}

func cover(s policy.Snapshot) []policy.Coverage {
	return policy.Cover(policy.Decide(s, epoch), s.Checks, s.Budgets, s.Nodes)
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
	assert.Equal(t, "40% of 1 allows 0 unhealthy targets, so nothing is ever remediated", found.Findings[0].Message)
	assert.Contains(t, found.Findings[1].Message, "unhealthyConditions[0]")
	assert.Contains(t, found.Findings[2].Message, "unhealthyConditions[3]", "of two equal ones the later is idle")

	zero := intstr.FromString("0%")
	c.MaxUnhealthy, c.Conditions = &zero, c.Conditions[1:2]
	assert.Empty(t, codes(cover(sickWorld(time.Hour, c))[0]), "an explicit zero is meant")
}

// A condition that no Node has is named, with the one that was probably meant.
func TestCoverFindsConditionsThatNoNodeHas(t *testing.T) {
	c := powerCheck("c")
	c.Conditions = []policy.UnhealthyCondition{
		{Type: "Ready", Status: "Unknown", Timeout: time.Minute},
		{Type: "ready", Status: "False", Timeout: time.Minute},
		{Type: "ready", Status: "Unknown", Timeout: time.Minute},
		{Type: "KernelDeadlock", Status: "True", Timeout: time.Minute},
	}
	s := sickWorld(time.Hour, c)
	assert.Equal(t, []policy.Finding{
		{Warning: true, Code: policy.FoundUnknownCondition, Message: "no Node has the condition ready; did you mean Ready?"},
		{Code: policy.FoundUnknownCondition, Message: "no Node has the condition KernelDeadlock now; does the program run that sets it?"},
	}, cover(s)[0].Findings)
	s.Nodes = nil
	assert.NotContains(t, codes(cover(s)[0]), policy.FoundUnknownCondition, "without Nodes nothing is known of their conditions")
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
