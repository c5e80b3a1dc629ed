package engine_test

import (
	"cmp"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// deadWebhook is an API server that waits for a webhook before it carries out an
// isolation, or what else is named, which it does not if the client is gone by then.
type deadWebhook struct {
	engine.Kube
	of     remediate.Action // IsolateNode if empty
	wait   time.Duration
	begun  func() // the first time
	cutOff atomic.Int32
}

func (k *deadWebhook) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	if a != cmp.Or(k.of, remediate.IsolateNode) {
		return k.Kube.Act(ctx, r, a, backups, b)
	}
	if k.begun != nil {
		k.begun()
		k.begun = nil
	}
	select {
	case <-ctx.Done():
		k.cutOff.Add(1)
		return ctx.Err()
	case <-time.After(k.wait):
	}
	return k.Kube.Act(ctx, r, a, backups, b)
}

// A Node is deleted although a webhook with failurePolicy Ignore takes its whole time. The
// host is read Off until the answer. // I1
func TestIsolationOutlastsADeadWebhook(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		before := 0
		k := &deadWebhook{Kube: w, wait: 30 * time.Second, begun: func() { before = w.Reads() }}
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = k })
		until(t, e, remediate.PowerOn)
		assert.GreaterOrEqual(t, w.Reads()-before, 25, "the proof is kept young")
		time.Sleep(30 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
		assert.Zero(t, k.cutOff.Load())
		stop()
	})
}

// If the proof ends while the API server waits, the request is cancelled, and nothing is
// deleted without a proof.
func TestIsolationIsCancelledWithItsProof(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(t *testing.T, w *world, e *engine.Engine)
		later   remediate.Step // whether the run isolates in the end, from a new proof
	}{
		"the host is switched on": {func(_ *testing.T, w *world, _ *engine.Engine) { w.SetPower(true) }, remediate.Done},
		"the BMC is silent for a while": {func(_ *testing.T, w *world, _ *engine.Engine) {
			w.FailReads(&bmc.Error{Kind: bmc.KindUnreachable})
			time.AfterFunc(20*time.Second, func() { w.FailReads(nil) })
		}, remediate.Done},
		"the BMC restarts": {func(_ *testing.T, w *world, _ *engine.Engine) { w.SetFault(fake.Restarts) }, remediate.Done},
		"a person pauses": {func(t *testing.T, _ *world, e *engine.Engine) {
			_, err := e.Pause(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "look"})
			assert.NoError(t, err)
		}, remediate.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				begun := make(chan *engine.Engine, 1)
				k := &deadWebhook{Kube: w, wait: 20 * time.Second}
				k.begun = func() {
					time.AfterFunc(5*time.Second, func() { c.happens(t, w, <-begun) })
					time.AfterFunc(19*time.Second, func() {
						assert.EqualValues(t, 1, k.cutOff.Load())
						assert.Zero(t, w.Isolations())
					})
				}
				e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = k })
				begun <- e
				time.Sleep(40 * time.Minute)
				assert.Equal(t, c.later, only(t, e).Step, only(t, e).Note)
				assert.Equal(t, c.later == remediate.Done, w.Isolations() == 1)
				stop()
			})
		})
	}
}

// An isolation on a manual confirmation also outlasts the webhook if the BMC is silent,
// and is cancelled by evidence against the confirmation. // I26
func TestIsolationOnAConfirmationUnderADeadWebhook(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(w *world)
		cut     bool
	}{
		"nothing":              {func(*world) {}, false},
		"the Lease is renewed": {func(w *world) { w.SetLeaseMoving(true) }, true},
		"the BMC reads On":     {func(w *world) { w.SetPower(true); w.FailReads(nil) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.pauseCheck()
				w.dead()
				k := &deadWebhook{Kube: w, wait: 25 * time.Second}
				k.begun = func() { time.AfterFunc(8*time.Second, func() { c.happens(w) }) }
				e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = k })
				time.Sleep(time.Second)
				_, err := e.ConfirmOff(t.Context(), byHand)
				assert.NoError(t, err)
				time.Sleep(30 * time.Minute)
				r := only(t, e)
				if c.cut { // Held, until all is well
					assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), r.Note)
				} else {
					assert.Equal(t, "ConfirmedOff", string(r.Reason), r.Note)
				}
				assert.Equal(t, c.cut, w.Isolations() == 0)
				assert.Equal(t, c.cut, k.cutOff.Load() == 1)
				stop()
			})
		})
	}
}

// A Machine is not deleted if the Node has come back by the time the webhook times out.
// Otherwise it is. // I14
func TestMachineDeletionUnderADeadWebhook(t *testing.T) {
	for name, back := range map[string]bool{"stays away": false, "comes back": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.ownMachines()
				w.SetBootTime(never)
				k := &deadWebhook{Kube: w, of: remediate.DeleteTargetMachine, wait: 25 * time.Second}
				k.begun = func() {
					if back {
						time.AfterFunc(8*time.Second, w.Recover)
					}
				}
				e, _, stop := start(t, w, store, func(o *engine.Options) {
					o.Run.MaxAttempts, o.Clusters[0].Reprovision, o.Clusters[0].Kube = 1, true, k
				})
				time.Sleep(90 * time.Minute)
				r := only(t, e)
				assert.Equal(t, back, len(w.Deprovisioned()) == 0)
				assert.Equal(t, back, k.cutOff.Load() > 0)
				if back {
					assert.Equal(t, remediate.Done, r.Step, r.Note)
				} else {
					assert.Equal(t, remediate.Reprovisioned, r.Step, r.Note)
				}
				stop()
			})
		})
	}
}
