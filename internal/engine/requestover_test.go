package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
)

// slowOff is a BMC, or a fence agent, that takes three seconds for Off. begins is called when the first Off is
// sent, done when it has taken effect.
type slowOff struct {
	bmc.Power
	once         *sync.Once
	begins, done func()
}

func (b slowOff) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if c != bmc.CommandOff {
		return b.Power.Send(ctx, c)
	}
	b.once.Do(b.begins)
	time.Sleep(3 * time.Second)
	r, err := b.Power.Send(ctx, c)
	b.done()
	return r, err
}

// giveUpRequest has the check of the request for n-1 give up on it.
func giveUpRequest(w *world) {
	w.Do(func(s *fake.State) { s.ChangeRequest("m-1", func(q *policy.Request) { q.TimedOut = time.Now() }) })
}

func processing(w *world) string { _, told := asked(w); return conditionOf(told, request.Processing) }

// NodeHealthCheck gives up on a request while fenced's Off is on its way. "Processing: False" says that this
// remediator does nothing any more, and the next one may begin. It must not be said while fenced still switches the
// host: not before the Off has taken effect, and not before the host is On again. // I22
func TestGivenUpRequestIsProcessedUntilTheHostIsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		var once sync.Once
		atOff := ""
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			o.Open = func(bmc.Device) (bmc.Power, error) {
				return slowOff{w.bmc(), &once, func() { giveUpRequest(w) }, func() { atOff = processing(w) }}, nil
			}
		})
		for w.On() {
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, "True", atOff, "Processing when fenced's Off takes effect")
		off := 0
		for ; !w.On(); off++ {
			if !assert.Equal(t, "True", processing(w), "Processing while the host is off because of fenced, which is about to switch it on; after %d s", off) {
				break
			}
			time.Sleep(time.Second)
		}
		for only(t, e).Open() {
			require.Equal(t, "True", processing(w), "Processing until the end of the run is saved")
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		_, told := asked(w)
		assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
		stop()
	})
}

// While the store takes nothing, the end of a run is not saved: whoever takes over would go on with it. // I19, I22
func TestGivenUpRequestIsProcessedUntilTheEndIsSaved(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		w.SetFault(fake.IgnoresOff)
		e, _, stop := start(t, w, store, responding(w))
		for w.Count(bmc.CommandOff) == 0 {
			time.Sleep(time.Second)
		}
		giveUpRequest(w)
		store.set(true)
		for range 300 {
			time.Sleep(time.Second)
			require.NotEqual(t, "False", processing(w))
		}
		store.set(false)
		for only(t, e).Open() {
			require.NotEqual(t, "False", processing(w))
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		assert.Equal(t, "False", processing(w))
		stop()
	})
}

// A request for which nothing has begun may begin a run at any moment. Once its check has given up on it, no run
// begins, and it says so at once. // I22
func TestGivenUpRequestWithoutARunIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = true })
		ask(w, nil)
		e, _, stop := start(t, w, store, responding(w))
		time.Sleep(time.Minute)
		_, told := asked(w)
		assert.Equal(t, []string{request.Pending, "Unknown"}, []string{told.Phase, processing(w)})
		giveUpRequest(w)
		time.Sleep(5 * time.Second)
		_, told = asked(w)
		assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = false })
		time.Sleep(time.Hour)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, w.Commands())
		stop()
	})
}

// A run that needs a person, and whose host may be off, says that another remediator may be asked, and not that fenced
// is done: it still brings the host back.
func TestHeldRunIsProcessedWhileItsHostMayBeOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		e, _, stop := start(t, w, store, responding(w))
		for w.On() {
			time.Sleep(time.Second)
		}
		w.SetLeaseMoving(true)
		time.Sleep(3 * time.Minute)
		require.Equal(t, reason.FalseOff, only(t, e).Reason)
		_, told := asked(w)
		assert.Equal(t, []string{request.Held, "True", "False"}, []string{told.Phase, processing(w), conditionOf(told, request.SucceededType)})
		giveUpRequest(w)
		time.Sleep(time.Minute)
		assert.Equal(t, "True", processing(w))
		stop()
		require.Equal(t, remediate.Held, only(t, e).Step)
	})
}

// A request whose attempts are used up is over once its check gives up on it: the host is On, and nothing is switched
// without the request. The check must not wait for fenced for ever. // I22
func TestGivenUpRequestIsOverWhenTheAttemptsAreUsedUp(t *testing.T) {
	for name, over := range map[string]func(*world){
		"given up": giveUpRequest,
		"deleted":  func(w *world) { w.Do(func(s *fake.State) { s.Withdraw("m-1") }) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				ask(w, nil)
				w.SetBootTime(never)
				e, _, stop := start(t, w, store, func(o *engine.Options) {
					responding(w)(o)
					waiting(o)
					o.Run.MaxAttempts, o.Run.ReadyTimeout = 1, time.Minute
				})
				require.Equal(t, reason.AttemptsExhausted, until(t, e, remediate.Waiting).Reason)
				require.True(t, w.On())
				require.Equal(t, "True", processing(w))
				offs := w.Count(bmc.CommandOff)
				over(w)
				time.Sleep(time.Minute)
				if q, told := asked(w); q != nil {
					assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
				}
				time.Sleep(3 * time.Hour)
				assert.Equal(t, offs, w.Count(bmc.CommandOff))
				stop()
			})
		})
	}
}

// The same run keeps no later request waiting: the one for which it began is gone, so it goes on for a request that
// asks, and for no other. // I22
func TestLaterRequestIsOverBesideARestingRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		w.SetBootTime(never)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			waiting(o)
			o.Run.MaxAttempts, o.Run.ReadyTimeout = 1, time.Minute
		})
		until(t, e, remediate.Waiting)
		offs := w.Count(bmc.CommandOff)
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		time.Sleep(time.Minute)
		ask(w, nil)
		time.Sleep(time.Minute)
		require.Equal(t, "True", processing(w), "the run goes on for it")
		giveUpRequest(w)
		time.Sleep(time.Minute)
		q, told := asked(w)
		require.NotNil(t, q)
		assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
		time.Sleep(3 * time.Hour)
		assert.Equal(t, offs, w.Count(bmc.CommandOff))
		assert.True(t, only(t, e).Open())
		stop()
	})
}

// So is one whose second attempt was taken back before the isolation, and whose host does not return. Its Node
// is there: a GitOps tool made it anew. // I22
func TestGivenUpRequestIsOverWhenALaterAttemptWasTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		w.SetBootTime(never)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			waiting(o)
			o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Run.MinPowerInterval = 2, time.Minute, time.Second
		})
		until(t, e, remediate.AwaitNode)
		w.SetFault(fake.IgnoresOff)
		w.Do(func(s *fake.State) { s.PutFromGit("n-1") })
		for w.Count(bmc.CommandOff) < 2 {
			time.Sleep(time.Second)
		}
		giveUpRequest(w)
		time.Sleep(time.Second)
		require.Equal(t, "True", processing(w))
		until(t, e, remediate.Waiting)
		require.True(t, w.On())
		offs := w.Count(bmc.CommandOff)
		time.Sleep(3 * time.Hour)
		require.True(t, only(t, e).Open())
		_, told := asked(w)
		assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
		assert.Equal(t, offs, w.Count(bmc.CommandOff))
		stop()
	})
}
