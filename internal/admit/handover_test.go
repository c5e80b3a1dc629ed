package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/remediate"
)

// What changes nothing for this cluster requests no decision: an instance reads all records after
// each change in the store, and most clusters have none.
func TestLoadingRecordsWakesOnlyForAChange(t *testing.T) {
	b := NewBook(BookOptions{Name: "c"}, time.Now())
	c := &Cluster{opt: Options{Name: "c", Book: b, Lead: lead.New(lead.Options{Name: "c"})}, book: b, wakeup: make(chan struct{}, 1)}
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
	assert.False(t, woke(false), "in a leadership the Book is newer")
	assert.Len(t, h.Records(), 1)
	b.EndLeadership()
	assert.True(t, woke(false))
	assert.Empty(t, h.Records())
}
