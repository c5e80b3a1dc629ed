package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// What changes nothing for this cluster requests no decision: an instance reads all records after
// each change in the store, and most clusters have none.
func TestLoadingRecordsWakesOnlyForAChange(t *testing.T) {
	b := cluster.New(cluster.Options{Name: "c"}, time.Now())
	c := &Cluster{opt: Options{Name: "c", Model: b, Lead: lead.New(lead.Options{Name: "c"})}, model: b, wakeup: make(chan struct{}, 1)}
	h := newHandovers(c)
	record := func(cluster, id string) escalate.Record {
		return escalate.Record{ID: id, Target: remediate.Target{Cluster: cluster, Node: "n"}, Objects: []escalate.Object{{Kind: "K"}}}
	}
	woke := func(begins bool, all ...escalate.Record) bool {
		h.Load(all, begins)
		select {
		case <-c.wakeup:
			return true
		default:
			return false
		}
	}
	assert.False(t, woke(false))
	assert.False(t, woke(false, record("d", "1")), "of another cluster")
	assert.True(t, woke(false, record("c", "1")))
	assert.False(t, woke(false, record("c", "1")), "as before")
	assert.False(t, woke(true, record("c", "1")))
	assert.False(t, woke(false), "in a leadership the Model is newer")
	assert.Len(t, h.Records(), 1)
	b.EndLeadership()
	assert.True(t, woke(false))
	assert.Empty(t, h.Records())
}

// A target that was not considered again is wanted no more.
func TestWantedIsForgottenWithoutItsTarget(t *testing.T) {
	h := &Handovers{wanted: map[pair]Ask{}}
	now := time.Now()
	one, two := pair{"p", "|one"}, pair{"p", "|two"}
	for _, key := range []pair{one, two} {
		h.wanted[key] = Ask{Check: &policy.Check{}, at: now, Target: policy.TargetReport{Node: key.target}}
	}
	require.Len(t, h.Wanted(now), 2)
	h.dropAllBut(map[pair]bool{two: true})
	left := h.Wanted(now)
	require.Len(t, left, 1)
	assert.Equal(t, "|two", left[0].Target.Node)
}
