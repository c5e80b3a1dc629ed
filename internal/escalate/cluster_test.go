package escalate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// What changes nothing for this cluster requests no decision: an instance reads all records after
// each change in the store, and most clusters have none.
func TestLoadingRecordsWakesOnlyForAChange(t *testing.T) {
	m := cluster.New(cluster.Options{Name: "c"}, time.Now())
	rs := NewRecords(m)
	record := func(cluster, id string) Record {
		return Record{ID: id, Target: remediate.Target{Cluster: cluster, Node: "n"}, Objects: []request.Object{{Kind: "K"}}}
	}
	wakes := func(begins bool, all ...Record) bool { return rs.Load(all, begins) }
	assert.False(t, wakes(false))
	assert.False(t, wakes(false, record("d", "1")), "of another cluster")
	assert.True(t, wakes(false, record("c", "1")))
	assert.False(t, wakes(false, record("c", "1")), "as before")
	require.NoError(t, m.Runs.BeginLeadership(nil))
	assert.False(t, wakes(true, record("c", "1")))
	assert.False(t, wakes(false), "in a leadership what is known is newer")
	assert.Len(t, rs.All(), 1)
	m.Runs.EndLeadership()
	assert.True(t, wakes(false))
	assert.Empty(t, rs.All())
}

// A target that was not considered again is wanted no more.
func TestWantedIsForgottenWithoutItsTarget(t *testing.T) {
	c := &Cluster{wanted: map[key]ask{}}
	now := time.Now()
	one, two := key{"p", "|one"}, key{"p", "|two"}
	for _, k := range []key{one, two} {
		c.wanted[k] = ask{cluster.Candidate{Check: &policy.Check{}, Draft: remediate.Run{Target: remediate.Target{Node: k.target}}}, now}
	}
	require.Len(t, c.asks(now), 2)
	c.KeepOnly(func(_, target string) bool { return target == two.target })
	left := c.asks(now)
	require.Len(t, left, 1)
	assert.Equal(t, "|two", left[0].Draft.Target.Node)
}
