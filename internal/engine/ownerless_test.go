package engine_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

// blind are owners whose store refuses to say whose the clusters are.
type blind struct {
	*heir
	refused *atomic.Bool
}

// Owner implements state.Owners.
func (b blind) Owner(cluster string) state.Owner {
	o := b.heir.Owner(cluster)
	if b.refused.Load() {
		o.Problem = "permission denied"
	}
	return o
}

// If the store refuses to say which instance owns a cluster, this is reported once, and
// shown while it lasts.
func TestClusterThatCannotBeOwnedSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var refused atomic.Bool
		refused.Store(true)
		d := newDeed()
		e, events, stop := start(t, w, store, func(o *engine.Options) {
			o.Instance, o.Owners = "a", blind{d.heir("a", store), &refused}
		})
		time.Sleep(5 * time.Minute)
		assert.Equal(t, "no instance owns the cluster now, as far as this instance knows: permission denied", e.Status()[0].Idle)
		assert.Contains(t, gate(t, e, reason.NotOwner).Value, "permission denied")
		_, err := e.ConfirmOff(t.Context(), byHand)
		refusedFor(t, err, reason.NotOwner)
		assert.NotContains(t, err.Error(), "orders are given there", "there is no such place")
		assert.Equal(t, 1, heard(t, events, "know who owns the cluster"))
		refused.Store(false)
		time.Sleep(5 * time.Second)
		assert.NotContains(t, e.Status()[0].Idle, "permission denied")
		stop()
	})
}
