package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/remediate"
)

// The ledger gets the open runs anew when one opens, ends or gets another target, and not at each
// save.
func TestOnlySavesThatMatterReachTheLedger(t *testing.T) {
	b := NewBook(BookOptions{Name: "c"}, time.Now())
	r := remediate.Run{ID: "1", Step: remediate.PowerOff, Target: remediate.Target{Cluster: "c", Node: "n", Namespace: "ns", Machine: "m"}}
	put := func(change func(*remediate.Run)) bool {
		b.runsChanged = false
		change(&r)
		b.put(r)
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
	b.put(r)
	assert.True(t, b.runsChanged)
}
