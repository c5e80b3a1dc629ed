package engine_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// lid is that of the computer which fenced runs on. While it is closed no time passes for
// the daemon, and all for the world.
type lid struct{ closed atomic.Int64 }

func (l *lid) suspended() time.Duration  { return time.Duration(l.closed.Load()) }
func (l *lid) suspend(by time.Duration)  { l.closed.Add(int64(by)) }
func (l *lid) options(o *engine.Options) { o.Suspended = l.suspended }
func isolatesOnce(t *testing.T, w *world, e *engine.Engine) {
	t.Helper()
	time.Sleep(10 * time.Minute)
	stands(t, e, remediate.Done)
	assert.Equal(t, 1, w.Isolations())
	assert.Equal(t, 2, w.Count(bmc.CommandOff), "Off was forgotten with its session")
	assert.True(t, w.Ready())
}

// The first view of a daemon after a suspend is older than it seems. As after an outage, a
// quiet period begins, and the view must be proven again. // I16
func TestSuspendEndsInAQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		var l lid
		e, events, _ := start(t, w, store, func(o *engine.Options) {
			l.options(o)
			o.Guards.QuietPeriod = 5 * time.Minute
		})
		time.Sleep(10 * time.Minute)
		w.SetReadySince("Unknown", time.Now().Add(-4*time.Minute))
		l.suspend(4 * time.Minute)
		time.Sleep(5*time.Minute - time.Second)
		assert.False(t, gate(t, e, reason.QuietPeriod).Pass)
		assert.Empty(t, e.Runs("c"))
		assert.Zero(t, w.Count(bmc.CommandOff))
		var told []string
		for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.ViewChanged || ev.Type == event.OwnerChanged }) {
			told = append(told, ev.Message)
		}
		assert.Contains(t, told, "not synced yet; this host was suspended for 4m0s")
		assert.Contains(t, told, "this host was suspended for 4m0s: the state is read again")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// A very short suspend is ignored.
func TestShortSuspendIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var l lid
		e, events, stop := start(t, w, store, l.options)
		for range 3 {
			time.Sleep(10 * time.Second)
			l.suspend(300 * time.Millisecond)
		}
		assert.Len(t, eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.OwnerChanged }), 1, "it owns the cluster")
		stop()
		assert.Empty(t, e.Runs("c"))
	})
}

// A reading from before a suspend proves nothing after it: the host may have been powered
// on and off meanwhile. // I1
func TestSuspendVoidsTheProof(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 2900 * time.Millisecond} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			var l lid
			e := running(t, w, store, l.options)
			await(t, func() bool { return w.Count(bmc.CommandOff) > 0 })
			time.Sleep(after)
			require.Zero(t, w.Isolations())
			l.suspend(time.Hour)
			isolatesOnce(t, w, e)
		})
	}
}

// An action that is running when the host is suspended is cancelled when the host wakes
// up. // I1, I19
func TestSuspendCancelsWhatIsRunning(t *testing.T) {
	scene(t, "isolation", func(t *testing.T, w *world, store *failingStore) {
		var l lid
		k := &deadWebhook{Kube: w, wait: 20 * time.Second, begun: func() { l.suspend(time.Hour) }}
		e := running(t, w, store, func(o *engine.Options) {
			l.options(o)
			o.Clusters[0].Kube = k
		})
		isolatesOnce(t, w, e)
		assert.Equal(t, int32(1), k.cutOff.Load())
	})
	scene(t, "command", func(t *testing.T, w *world, store *failingStore) {
		var l lid
		took := make(chan time.Duration, 10)
		running(t, w, store, func(o *engine.Options) {
			l.options(o)
			o.Open = func(bmc.Device) (bmc.Power, error) { return slowPower{w.bmc(), took, time.Hour}, nil }
		})
		time.Sleep(untilOff)
		l.suspend(time.Hour)
		time.Sleep(2 * time.Second)
		require.Len(t, took, 1)
		assert.Less(t, <-took, 5*time.Second, "else it may take ten")
	})
}

// oldWatch is a watch whose connection is dead: what it has was proven that long ago. Nor
// did it tell the time.
type oldWatch struct {
	admit.Watch
	proven  atomic.Pointer[time.Time] // nil: now
	noClock bool
}

func (o *oldWatch) View() admit.View {
	v := o.Watch.View()
	if at := o.proven.Load(); at != nil {
		v.Age = time.Since(*at)
	}
	v.SkewKnown = v.SkewKnown && !o.noClock
	return v
}

// A check that was seen before a suspend does not justify an open run: it may have been
// paused since. // I4, I16
func TestViewFromBeforeASuspendJustifiesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var l lid
		old := &oldWatch{}
		e := running(t, w, store, func(o *engine.Options) {
			l.options(o)
			old.Watch = o.Clusters[0].Watch
			o.Clusters[0].Watch = old
			o.Record = func(ev event.Event) error {
				if now := time.Now(); ev.Type == event.Started {
					old.proven.Store(&now)
					l.suspend(12 * time.Hour)
				}
				return nil
			}
		})
		time.Sleep(80 * time.Second)
		assert.Equal(t, remediate.PowerOff, only(t, e).Step)
		assert.Zero(t, w.Count(bmc.CommandOff))
		old.proven.Store(nil)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
	})
}

// An order to fence on which nothing was done is not carried out hours later. // I4
func TestOldOrderIsNotCarriedOut(t *testing.T) {
	for _, after := range []time.Duration{20 * time.Second, 11 * time.Minute} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady("True")
			e, _, stop := start(t, w, store, nil)
			time.Sleep(10 * time.Second)
			asked := w.Looks()
			w.OnLook(func(n int) {
				if n > asked+1 { // the run's own
					time.Sleep(time.Second)
				}
			})
			accepted(t)(e.Fence(t.Context(), byHand))
			stop() // while it looks for the first time
			w.OnLook(nil)
			require.Zero(t, w.Count(bmc.CommandOff))
			time.Sleep(after)
			e = running(t, w, store, func(o *engine.Options) { // its deadlines begin anew
				o.Clusters[0].Watch = &oldWatch{Watch: o.Clusters[0].Watch, noClock: true}
			})
			time.Sleep(10 * time.Minute)
			assert.False(t, only(t, e).Open())
			assert.Equal(t, after < time.Minute, w.Count(bmc.CommandOff) > 0)
		})
	}
}
