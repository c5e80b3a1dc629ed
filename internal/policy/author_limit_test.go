package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

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
