package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// The ledger gets the open runs anew when one opens, ends or gets another target, and not at each
// save.
func TestOnlySavesThatMatterReachTheLedger(t *testing.T) {
	b := New(Options{Name: "c"}, time.Now())
	r := remediate.Run{ID: "1", Step: remediate.PowerOff, Target: remediate.Target{Cluster: "c", Node: "n", Namespace: "ns", Machine: "m"}}
	put := func(change func(*remediate.Run)) bool {
		b.runsChanged = false
		change(&r)
		b.Put(r)
		return b.runsChanged
	}
	assert.True(t, put(func(*remediate.Run) {}), "it opens")
	assert.False(t, put(func(r *remediate.Run) { r.Version++ }))
	assert.False(t, put(func(r *remediate.Run) { r.Step = remediate.DeleteNode }))
	assert.True(t, put(func(r *remediate.Run) { r.Target.Node = "other" }))
	assert.True(t, put(func(r *remediate.Run) { r.ControlPlane = true }))
	assert.True(t, put(func(r *remediate.Run) { r.Step = remediate.Done }), "it ends")
	assert.False(t, put(func(r *remediate.Run) { r.Version++ }))

	b.runsChanged = true // by another run
	b.Put(r)
	assert.True(t, b.runsChanged)
}

// TestFewestFirst: who has many targets in one namespace comes after the others, whatever the names.
func TestFewestFirst(t *testing.T) {
	check := func(source, namespace, name string, targets int) policy.CheckReport {
		return policy.CheckReport{Source: source, Namespace: namespace, Name: name, Targets: make([]policy.TargetReport, targets)}
	}
	list := []policy.CheckReport{
		check("cluster", "aaa", "a", 1), check("cluster", "aaa", "b", 9), check("cluster", "racks", "d", 2), check("cluster", "racks", "e", 3),
		check("", "", "nhc", 20), check("policies.d/a.yaml:1", "aaa", "file", 20),
	}
	fewestFirst(list)
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"nhc", "file", "d", "e", "a", "b"}, names)
}
