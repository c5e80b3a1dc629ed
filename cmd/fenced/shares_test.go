package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

func TestShareOfEach(t *testing.T) {
	for _, c := range []struct{ a, b, c, most, each int }{
		{5, 5, 5, 15, 5},
		{1, 2, 90, 10, 7},
		{50, 60, 70, 30, 10},
		{9, 9, 9, 2, 1},
	} {
		counts := map[string]int{"a": c.a, "b": c.b, "c": c.c}
		assert.Equal(t, c.each, shareOfEach(counts, c.most), "%+v", c)
	}
}

// Whoever may create namespaces makes no answer longer than the limit.
func TestMoreNamespacesThanTheLimit(t *testing.T) {
	var list []string
	for i := range 30 {
		list = append(list, fmt.Sprint("tenant-", i/3))
	}
	itself := func(in string) string { return in }
	kept, more := share(list, 4, itself)
	assert.Equal(t, []string{"tenant-0", "tenant-1", "tenant-2", "tenant-3"}, kept)
	assert.Equal(t, 26, more)
	kept, more = share(append(list, "", ""), 4, itself)
	assert.Equal(t, []string{"tenant-0", "tenant-1", "tenant-2", ""}, kept, "the last is of an administrator")
	assert.Equal(t, 28, more)
	kept, more = share(list, 25, itself)
	assert.Len(t, kept, 20, "two of each of 10")
	assert.Equal(t, 10, more)
}

// What a namespace writes neither keeps other namespaces out of the status nor makes the
// status longer than a client reads.
func TestStatusOfACrowdedNamespace(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	found := policy.Report{}
	for i := range 3000 {
		k := policy.CheckReport{Kind: "MachineHealthCheck", Namespace: "tenant", Name: fmt.Sprint(i), State: policy.StateInvalid, Message: long}
		for j := range 10 {
			k.Targets = append(k.Targets, policy.TargetReport{Machine: fmt.Sprintf("tenant/m-%d", j), Verdict: policy.Indeterminate, Message: long})
		}
		found.Checks = append(found.Checks, k)
	}
	found.Checks = append(found.Checks, policy.CheckReport{
		Kind: "MachineHealthCheck", Namespace: "workers", Name: "all",
		Targets: []policy.TargetReport{{Node: "w-1", Verdict: policy.Unhealthy, Reason: reason.Undecodable}},
	})
	s := clusterStatus(engine.ClusterStatus{}, found)
	require.Len(t, s.Checks, maxChecksShown)
	assert.Equal(t, 1001, s.ChecksMore)
	assert.Equal(t, "workers", s.Checks[maxChecksShown-1].Namespace)
	require.Len(t, s.Deviating, maxTargetsShown)
	assert.Equal(t, 20_001, s.DeviatingMore)
	assert.Equal(t, api.TargetStatus{Node: "w-1", Check: "MachineHealthCheck workers/all", Verdict: "Unhealthy", Reason: string(reason.Undecodable)}, s.Deviating[maxTargetsShown-1])
	for _, d := range s.Deviating {
		require.LessOrEqual(t, len(d.Message), maxShownText+len("..."))
	}
}

// The same of a plan.
func TestPlanOfACrowdedNamespace(t *testing.T) {
	p := admit.Plan{}
	for i := range maxTargetsShown {
		p.Items = append(p.Items, admit.Planned{Check: policy.CheckID{Kind: "MachineHealthCheck", Namespace: "tenant", Name: "all"}, Node: fmt.Sprint(i), Trigger: strings.Repeat("x", 1<<12)})
	}
	p.Items = append(p.Items, admit.Planned{Check: policy.CheckID{Kind: "MachineHealthCheck", Namespace: "workers", Name: "all"}, Node: "w-1"})
	actions, more := plannedActions(p)
	require.Len(t, actions, maxTargetsShown)
	assert.Equal(t, 1, more)
	assert.Equal(t, "w-1", actions[maxTargetsShown-1].Node)
	assert.LessOrEqual(t, len(actions[0].Message), maxShownText+len("..."))
}
