package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/law"
)

// The annotation names several instances that take turns.
func TestSeveralEvaluators(t *testing.T) {
	for text, want := range map[string]policy.State{
		"bastion-2": policy.StateActive, "bastion-1,bastion-2": policy.StateActive, "bastion-2, bastion-3": policy.StateActive, " bastion-2 ": policy.StateActive,
		"bastion-1": policy.StatePaused, "bastion-1,bastion-3": policy.StatePaused, "bastion-20,xbastion-2": policy.StatePaused, ",": policy.StatePaused,
	} {
		l := policy.NewLedger(policy.Rules{Instance: "bastion-2"})
		check := nodeCheckOf(text)
		l.Apply(epoch, changeOf(check))
		found := l.Counters()
		require.Len(t, found, 1)
		assert.Equal(t, want, found[0].State, "%q", text)
	}
}

// A report says whether a NodeHealthCheck is disabled by MachineHealthChecks or by itself.
func TestReportOfAConflict(t *testing.T) {
	own := nodeCheck("c")
	own.Disabled = "MachineHealthCheck is no template"
	of := func(s policy.Snapshot) policy.CheckReport {
		for _, r := range policy.Decide(s, epoch).Checks {
			if r.Kind == policy.NodeHealthCheckKind {
				return r
			}
		}
		return policy.CheckReport{}
	}
	r := of(policy.Snapshot{Checks: []policy.Check{own}})
	assert.Equal(t, policy.StateDisabled, r.State)
	assert.False(t, r.Conflicting)
	machines := policy.Check{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", Selector: labels.Everything(),
		Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}}
	r = of(policy.Snapshot{Checks: []policy.Check{nodeCheck("c"), machines}})
	assert.Equal(t, policy.StateDisabled, r.State)
	assert.True(t, r.Conflicting)
}

// daily is a window as its author would say it, to hold the cron against.
type daily struct {
	minute, hour int
	weekday      int // -1 is every day
	duration     time.Duration
}

func drawDaily(t *rapid.T) daily {
	return daily{
		minute: rapid.IntRange(0, 59).Draw(t, "minute"), hour: rapid.IntRange(0, 23).Draw(t, "hour"),
		weekday:  rapid.IntRange(-1, 6).Draw(t, "weekday"),
		duration: time.Duration(rapid.Int64Range(1, int64(49*time.Hour)).Draw(t, "duration")),
	}
}

func (d daily) text() map[string]any {
	day := "*"
	if d.weekday >= 0 {
		day = fmt.Sprint(d.weekday)
	}
	return map[string]any{"schedule": fmt.Sprintf("%d %d * * %s", d.minute, d.hour, day), "duration": d.duration.String()}
}

// in says whether one of the starts of the last days is less than the duration
// ago.
func (d daily) in(now time.Time) bool {
	for back := range 4 {
		y, m, day := now.AddDate(0, 0, -back).Date()
		start := time.Date(y, m, day, d.hour, d.minute, 0, 0, time.UTC)
		if d.weekday >= 0 && int(start.Weekday()) != d.weekday {
			continue
		}
		if !now.Before(start) && now.Before(start.Add(d.duration)) {
			return true
		}
	}
	return false
}

func windowed(windows ...daily) policy.Check {
	var list []any
	for _, d := range windows {
		list = append(list, d.text())
	}
	return manifest.FencePolicy(map[string]any{
		"apiVersion": policy.FencedAPI, "kind": policy.FencePolicyKind, "metadata": map[string]any{"name": "racks"},
		"spec": map[string]any{
			"nodeSelector":        map[string]any{"matchLabels": map[string]any{"rack": "r1"}},
			"unhealthyConditions": []any{map[string]any{"type": "Ready", "status": "Unknown", "timeout": "1m"}},
			"maintenanceWindows":  list,
		},
	})
}

func drawInstant(t *rapid.T, label string) time.Time {
	return epoch.Add(time.Duration(rapid.Int64Range(0, int64(30*24*time.Hour)).Draw(t, label)))
}

// TestLawWindow: a check is paused exactly inside its windows, and what it says
// of itself changes at no other instant than its due.
func TestLawWindow(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		windows := []daily{drawDaily(t)}
		if rapid.Bool().Draw(t, "two") {
			windows = append(windows, drawDaily(t))
		}
		c := windowed(windows...)
		require.Empty(t, c.Invalid)
		at := func(now time.Time) policy.CheckReport {
			return policy.Decide(policy.Snapshot{Checks: []policy.Check{c}}, now).Checks[0]
		}
		now := drawInstant(t, "now")
		if rapid.Bool().Draw(t, "edge") { // instants that matter are rare by chance
			now = at(now).Due
		}
		paused := false
		for _, d := range windows {
			paused = paused || d.in(now)
		}
		r := at(now)
		assert.Equal(t, paused, r.State == policy.StatePaused, "%s at %s", r.Message, now)

		require.True(t, r.Due.After(now), "a window begins or ends some time")
		for _, later := range []time.Time{
			now.Add(time.Duration(rapid.Int64Range(0, int64(r.Due.Sub(now))-1).Draw(t, "later"))), r.Due.Add(-1),
		} {
			assert.Equal(t, r, at(later), "nothing changes at %s", later)
		}
		assert.NotEqual(t, r, at(r.Due), "something changes when it is due")
	})
}

// TestWindowAtNoTime: what is asked without a time is about the check itself.
func TestWindowAtNoTime(t *testing.T) {
	always := windowed(daily{weekday: -1, duration: 48 * time.Hour})
	state, message := always.State()
	assert.Equal(t, policy.StateActive, state, message)

	n := policy.Node{Name: "n-1", Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown"}})}
	judged := policy.Evaluate(&always, policy.CheckContext{}, policy.Subject{Node: &n}, epoch)
	assert.Equal(t, policy.Skipped, judged.Verdict, "also the look just before acting sees the window")
	assert.Equal(t, reason.Paused, judged.Reason)
	assert.Equal(t, policy.None, judged.Action)
}

// never is a schedule that has come to its end.
type never struct{}

func (never) Next(time.Time) time.Time { return time.Time{} }

// TestWindowThatNeverComesAgain: a schedule looks a few years ahead only.
func TestWindowThatNeverComesAgain(t *testing.T) {
	c := policy.Check{
		Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "c", Selector: labels.Everything(), SelectsNodes: true,
		Windows: []policy.Window{{Text: "0 0 29 2 *", Starts: never{}, Duration: time.Hour}},
	}
	r := policy.Decide(policy.Snapshot{Checks: []policy.Check{c}}, epoch).Checks[0]
	assert.Equal(t, policy.StateActive, r.State)
	assert.Zero(t, r.Due)
}

// Checks that have too many targets together are none of them evaluated, until they
// have few enough again. What each event comes to amid a crowd, TestLedger shows.
func TestTooManyTargets(t *testing.T) { // I18
	s := sickWorld(time.Hour, powerCheck("a"), powerCheck("b"), powerCheck("c"))
	s.Rules.MaxTargets = 2
	assert.Equal(t, []reason.Code{reason.InvalidCheck, reason.InvalidCheck, reason.InvalidCheck}, explain(s, "n-1"))
	l := ledgerOf(s)
	assert.Empty(t, l.Acting(epoch))
	for _, c := range l.Counters() {
		assert.Equal(t, policy.StateInvalid, c.State)
		assert.Contains(t, c.Message, "of namespace ns select more than 2 targets together")
	}
	c := s.Checks[2]
	found := policy.Evaluate(&c, l.CheckContext(&c), policy.Subject{Machine: &s.Machines[0], Node: s.Nodes["n-1"]}, epoch)
	assert.Equal(t, policy.None, found.Action, "nor does an open run go on to its first off") // I4
	l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}})
	acting := l.Acting(epoch)
	require.Len(t, acting, 2)
	require.Len(t, acting[0].Targets, 1)
	assert.Equal(t, policy.PowerCycle, acting[0].Targets[0].Action)
	assert.Empty(t, acting[0].Targets[0].Refusals)
}

// 100,000 is the bound of a namespace where the rules do not say another. That the ledger says
// what Decide does, TestLedger shows; what it costs, BenchmarkChecksJudge.
func TestManyChecksOfEverything(t *testing.T) { // I18
	s := checkWorld(21, 0)
	for _, c := range policy.Decide(s, epoch).Checks {
		require.Equal(t, policy.StateInvalid, c.State)
	}
	s.Rules.Namespaces = []string{s.Checks[0].Namespace} // the administrator's
	for _, c := range policy.Decide(s, epoch).Checks {
		require.Equal(t, policy.StateActive, c.State)
	}
}

// Checks of one namespace with too many targets stop neither those of another nor the
// administrator's files.
func TestTooManyTargetsStopTheirNamespaceAlone(t *testing.T) { // I18
	s := sickWorld(time.Hour, powerCheck("a"), powerCheck("file"), powerCheck("crowd-1"), powerCheck("crowd-2"))
	s.Rules.MaxTargets = 1
	s.Checks[1].Source = "policies.d/all.yaml:1"
	tenant := s.Machines[0]
	tenant.Namespace, tenant.UID, tenant.NodeName = "tenant", "of-tenant", "n-of-tenant"
	s.Machines = append(s.Machines, tenant)
	s.Checks[2].Namespace, s.Checks[3].Namespace = "tenant", "tenant"
	l := ledgerOf(s)
	for _, decided := range [][]policy.CheckReport{policy.Decide(s, epoch).Checks, l.Report(epoch).Checks} {
		states := map[string]policy.State{}
		for _, c := range decided {
			states[c.Name] = c.State
		}
		assert.Equal(t, map[string]policy.State{"a": policy.StateActive, "file": policy.StateActive,
			"crowd-1": policy.StateInvalid, "crowd-2": policy.StateInvalid}, states)
	}
}

// Whoever exceeds the limit and keeps it in turns, has all targets evaluated again once in a pause.
func TestTargetLimitInTurns(t *testing.T) { // I18
	s := sickWorld(time.Hour, powerCheck("a"), powerCheck("b"))
	s.Rules.MaxTargets, s.Rules.TargetLimitPause = 1, policy.TargetLimitPause
	b := &s.Checks[1]
	id := policy.ObjectID{APIVersion: b.APIVersion, Kind: b.Kind, Namespace: b.Namespace, Name: b.Name}
	l := ledgerOf(s)
	now := epoch
	for range 3 {
		l.Apply(now, policy.Change{ID: id, Value: b}, policy.Change{ID: id})
		for range int(policy.TargetLimitPause / time.Second) {
			require.Empty(t, l.Acting(now))
			require.Equal(t, policy.StateInvalid, l.Counters()[0].State)
			now = now.Add(time.Second)
		}
		next, ok := l.Next, !l.Next.IsZero()
		require.True(t, ok)
		require.False(t, next.After(now), "it is evaluated again without any change")
		require.Len(t, l.Acting(now), 1)
	}
	l.Apply(now, policy.Change{ID: id, Value: b}, policy.Change{ID: id})
	l.Advance(now.Add(-time.Hour))
	assert.Equal(t, policy.StateActive, l.Counters()[0].State, "nor does it wait longer when the clock is set back")
}

// However many checks cover one target, each refusal names a few of them, and each check few that it overlaps.
func TestManyChecksOfOneTarget(t *testing.T) { // I18
	var checks []policy.Check
	for i := range 1000 {
		c := powerCheck(fmt.Sprintf("c-%03d", i))
		if i%2 == 0 {
			c.Strategy = policy.CountOnly
		}
		checks = append(checks, c)
	}
	r := policy.Decide(sickWorld(time.Hour, checks...), epoch)
	gates := policy.ExplainTarget(&r.Checks[1], &r.Checks[1].Targets[0])
	var names []string
	for _, g := range gates {
		if g.Reason == reason.Overlap {
			names = append(names, g.Source)
		}
	}
	assert.Equal(t, []string{"check ns/c-000", "check ns/c-002", "check ns/c-004", "check ns/c-006"}, names)
	for _, v := range policy.Cover(r, checks, nil, nil) {
		assert.Len(t, v.Overlaps, 50)
	}
}
