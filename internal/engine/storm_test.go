package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
)

// stormy makes the world's check a NodeHealthCheck that waits after a storm, in
// the middle of one.
func stormy(w *world) {
	one := intstr.FromInt32(1)
	w.check = policy.Check{
		Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: "nhc", UID: "nhc-uid", Selector: labels.Everything(), SelectsNodes: true,
		Strategy: policy.CreateRequests, MaxUnhealthy: &one, StormCooldown: time.Hour,
		Template:   &policy.Template{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediationTemplate", Name: "t"},
		Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
	}
	w.machineAPI, w.othersDown = "", true
}

// A cooldown is known by having seen the storm, also when the check is read again.
func TestStormIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		gate(t, e, policy.ShortCircuit)
		w.setOthersDown(false)
		time.Sleep(30 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, policy.StormCooldown)
		time.Sleep(31 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"), "the end of the cooldown needs no event")
		stop()
	})
}

// After a start nobody knows of storms: there may just have been one.
func TestStormIsNotForgottenByARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		_, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		w.setOthersDown(false)
		time.Sleep(time.Minute)
		stop()
		e, _, stop := start(t, w, store, nil)
		time.Sleep(59 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, policy.StormCooldown)
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
		stop()
	})
}

// A check that is made anew under an old name begins without its storm.
func TestStormGoesWithItsCheck(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Hour)
		w.mu.Lock()
		w.othersDown = false
		w.mu.Unlock()
		time.Sleep(time.Minute)
		gate(t, e, policy.StormCooldown)
		w.mu.Lock()
		w.check.UID = "another"
		w.mu.Unlock()
		time.Sleep(5 * time.Second)
		assert.NotEmpty(t, e.Runs("c"), "the daemon has watched for longer than the cooldown")
		stop()
	})
}

// blinded is the world whose checks cannot be seen for a while.
type blinded struct {
	*world
	mu    sync.Mutex
	blind bool
	back  bool      // the outage ends just before what changed is told
	since time.Time // the end of the outage
}

func (b *blinded) Changes() []policy.Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.back {
		b.back, b.blind, b.since = false, false, time.Now()
	}
	list := b.world.Changes()
	for i := range list {
		if _, ok := list[i].Value.(*policy.Check); ok && b.blind {
			list[i].Value = nil
		}
	}
	return list
}

func (b *blinded) View() engine.View {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.world.View()
	v.Since = b.since
	return v
}

// A kind that vanished takes what was remembered of its checks with it: when it is
// back there may just have been a storm.
func TestStormMayHaveBeenWhileNobodyLooked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		b := &blinded{world: w}
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Watch = b })
		time.Sleep(3 * time.Hour)
		b.mu.Lock()
		b.blind = true
		b.mu.Unlock()
		time.Sleep(2 * time.Second)
		w.setOthersDown(false)
		b.mu.Lock()
		b.back = true
		b.mu.Unlock()
		time.Sleep(59 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
		stop()
	})
}
