package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
)

// An owner whose own host is to be repaired by another remediator hands the cluster over, too: only the
// other instance may ask for that. // I13
func TestOwnerOfAHandedOverHostHandsTheClusterOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		handOver := handingOver(w)
		isOn := on(map[string]string{"a": "n-1"})
		p := newPair(t, w, store, func(name string, o *engine.Options) { isOn(name, o); handOver(o) })
		p.give("a")
		time.Sleep(75 * time.Second)
		s := p.engine["a"].Status()[0]
		assert.False(t, s.Owner)
		assert.Contains(t, s.Aside, "the Node's machineID is this host's /etc/machine-id; instance b owns the cluster")
		awaitAsked(t, w, "the other instance asks", func() bool { return len(others(w)) == 1 })
		answer(w, "True")
		time.Sleep(4 * time.Minute)
		assert.NotEmpty(t, p.engine["a"].Status()[0].Aside, "it is not repaired yet")
		w.Recover()
		time.Sleep(8 * time.Minute) // a minute for a remediator that was slow, and five minutes well
		assert.Empty(t, others(w))
		assert.Empty(t, p.engine["a"].Status()[0].Aside)
		require.Len(t, p.asides(t, "a"), 2)
		assert.Empty(t, w.Commands())
		p.end()
	})
}
