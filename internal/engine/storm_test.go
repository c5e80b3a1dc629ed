package engine_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/fake"
)

// stormy makes the world's check a NodeHealthCheck that waits after a storm, in
// the middle of one.
func stormy(w *world) {
	one := intstr.FromInt32(1)
	w.changeCheck(func(c *policy.Check) {
		*c = policy.Check{
			Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: "nhc", UID: "nhc-uid", Selector: labels.Everything(), SelectsNodes: true,
			Strategy: policy.CreateRequests, MaxUnhealthy: &one, StormCooldown: time.Hour,
			Template:   &policy.Template{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediationTemplate", Name: "t"},
			Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
		}
	})
	w.dropMachines()
	w.setOthersDown(true)
}

// A cooldown can be computed only by one who saw the storm. The state survives when the
// check is read again.
func TestStormStateSurvivesAReread(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.ShortCircuit)
		w.setOthersDown(false)
		time.Sleep(30 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.StormCooldown)
		time.Sleep(31 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"), "the end of the cooldown needs no event")
		stop()
	})
}

// After a start it is not known whether there was a storm: fenced assumes that one has
// just ended.
func TestRestartAssumesAStorm(t *testing.T) {
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
		gate(t, e, reason.StormCooldown)
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
		stop()
	})
}

// A check that is created again under an old name starts without the storm of the old one.
func TestStormGoesWithItsCheck(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Hour)
		w.setOthersDown(false)
		time.Sleep(time.Minute)
		gate(t, e, reason.StormCooldown)
		w.changeCheck(func(c *policy.Check) { c.UID = "another" })
		time.Sleep(5 * time.Second)
		assert.NotEmpty(t, e.Runs("c"), "the daemon has watched for longer than the cooldown")
		stop()
	})
}

// returning is a watch whose outage ends just before what changed is told.
type returning struct {
	admit.Watch
	before atomic.Pointer[func()]
}

func (r *returning) Changes() []policy.Change {
	if ends := r.before.Swap(nil); ends != nil {
		(*ends)()
	}
	return r.Watch.Changes()
}

// When a kind of check vanishes, the storm state of its checks is dropped. When it
// returns, fenced assumes that a storm has just ended.
func TestStormIsAssumedAfterItsKindWasMissing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		watch := &returning{}
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			watch.Watch, o.Clusters[0].Watch = o.Clusters[0].Watch, watch
		})
		time.Sleep(3 * time.Hour)
		w.Do(func(s *fake.State) { s.DropCheck(s.Check) })
		time.Sleep(2 * time.Second)
		w.setOthersDown(false)
		ends := func() { w.Do(func(s *fake.State) { s.BringUp(); s.ShowCheck(s.Check) }) }
		watch.before.Store(&ends)
		w.Do(func(s *fake.State) { s.ChangeNode("n-1", func(*fake.Node) {}) }) // something is told
		time.Sleep(59 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
		stop()
	})
}
