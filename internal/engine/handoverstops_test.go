package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// What people stop stops the writes about a request, too: a pause, a hold, and a cluster that was
// disarmed. Only what a target that is well does not need any more goes then. // I23
func TestStopsForbidWritesAboutRequests(t *testing.T) {
	by := wire.Order{Cluster: "c", Actor: "p", Reason: "r"}
	on := wire.Order{Cluster: "c", Node: "n-1", Actor: "p", Reason: "r"}
	for name, c := range map[string]struct {
		stop, end func(*testing.T, *engine.Engine) error
		tidies    bool
	}{
		"pause": {
			func(t *testing.T, e *engine.Engine) error { _, err := e.Pause(t.Context(), by); return err },
			func(t *testing.T, e *engine.Engine) error { _, err := e.Resume(t.Context(), by); return err }, false,
		},
		"hold": {
			func(t *testing.T, e *engine.Engine) error { _, err := e.Hold(t.Context(), on); return err },
			func(t *testing.T, e *engine.Engine) error { _, err := e.ReleaseHold(t.Context(), on); return err }, false,
		},
		"disarm": {
			func(t *testing.T, e *engine.Engine) error { _, err := e.Arming.Disarm(t.Context(), by); return err },
			func(t *testing.T, e *engine.Engine) error { _, err := e.Arming.Arm(t.Context(), by); return err }, true,
		},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			change := escalating(w, otherTemplate, thirdTemplate)
			e := running(t, w, store, func(o *engine.Options) { change(o); o.Clusters[0].Mode = "observe" })
			time.Sleep(time.Second) // until it leads
			must.Do(e.Arming.Arm(t.Context(), by))(t)
			askedAndBegun(t, w)
			require.NoError(t, c.stop(t, e))
			time.Sleep(10 * time.Minute)
			require.True(t, others(w)[0].TimedOut.IsZero(), "its time is over, and it was not told")
			w.Recover()
			time.Sleep(2 * time.Minute)
			if !c.tidies {
				require.Len(t, others(w), 1)
				require.NoError(t, c.end(t, e))
				time.Sleep(2 * time.Minute)
			}
			assert.Empty(t, others(w))
		})
	}
}

// A pause that comes while a request is being prepared stops it at the last moment, and leaves no
// record behind. // I23
func TestPauseJustBeforeARequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var here atomic.Pointer[engine.Engine]
		change := handingOver(w)
		e := running(t, w, store, func(o *engine.Options) {
			change(o)
			o.Record = func(ev event.Event) error {
				if ev.Type == event.Requested {
					_, err := here.Load().Pause(t.Context(), wire.Order{Cluster: "c", Actor: "p", Reason: "r"})
					assert.NoError(t, err)
				}
				return nil
			}
		})
		here.Store(e)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		gate(t, e, reason.Paused)
		assert.Empty(t, must.Do(escalate.Load(t.Context(), store))(t))
	})
}

// A creation without an answer may have made the object: for two minutes it may appear, and nobody
// acts on the target. Then it is tried again.
func TestCreationWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var tries atomic.Int32
		var first atomic.Int64
		w.Do(func(s *fake.State) {
			s.OnHandover = func() error {
				if tries.Add(1) > 1 {
					return nil
				}
				first.Store(time.Now().Unix())
				return errors.New("no answer")
			}
		})
		e := running(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is tried", func() bool { return tries.Load() == 1 })
		time.Sleep(time.Minute)
		gate(t, e, reason.UnderRemediation)
		awaitAsked(t, w, "it is tried again", func() bool { return len(others(w)) == 1 })
		assert.GreaterOrEqual(t, time.Since(time.Unix(first.Load(), 0)), 2*time.Minute)
	})
}

// One that certainly made nothing leaves no record.
func TestCreationThatIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.OnHandover = func() error { return request.ErrNotMade } })
		e := running(t, w, store, handingOver(w))
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.RequestFailed)
		assert.Empty(t, must.Do(escalate.Load(t.Context(), store))(t))
	})
}

// While the store refuses the record, nobody is asked. // I19
func TestNoRequestWithoutARecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, handingOver(w))
		time.Sleep(30 * time.Second)
		store.set(true)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		store.set(false)
		time.Sleep(6 * time.Minute)
		assert.Len(t, others(w), 1)
		gate(t, e, reason.UnderRemediation)
	})
}

// A slow audit log makes the fresh reads old: nothing is made on them. // I4
func TestNoRequestOnOldReads(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change, slow := handingOver(w), atomic.Int32{}
		slow.Store(1)
		e := running(t, w, store, func(o *engine.Options) {
			change(o)
			o.Record = func(ev event.Event) error {
				if ev.Type == event.Requested && slow.Add(-1) == 0 {
					time.Sleep(11 * time.Second)
				}
				return nil
			}
		})
		time.Sleep(75 * time.Second)
		require.Zero(t, slow.Load())
		assert.Empty(t, others(w))
		assert.Contains(t, gate(t, e, reason.RequestFailed).Value, "may have recovered meanwhile")
		time.Sleep(time.Minute)
		assert.Len(t, others(w), 1)
	})
}

// Once the check does not ask any more, nothing is tried again.
func TestNothingIsTriedForACheckThatDoesNotAsk(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		prepared := func() (n int) { w.Do(func(s *fake.State) { n = s.Prepared }); return n }
		again := errors.Join(&reason.Refusal{Reason: reason.Contested, Message: "it is tried again soon"}, request.ErrNotMade)
		w.Do(func(s *fake.State) { s.OnHandover = func() error { return again } })
		running(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is tried", func() bool { return prepared() > 0 })
		w.changeCheck(func(c *policy.Check) { c.Evaluator = "" })
		time.Sleep(500 * time.Millisecond)
		before := prepared()
		time.Sleep(10 * time.Minute)
		assert.Equal(t, before, prepared())
	})
}

// In place of a NodeHealthCheck's controller fenced holds medik8s' Lease on the Node from before it asks
// another remediator until the request is gone, also after a restart.
func TestAskedRemediatorHasTheNodeLock(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.Do(func(s *fake.State) {
			s.OnHandover = func() error {
				assert.NotEmpty(t, w.lockOf().Run, "the Lease is taken before the request is made")
				return nil
			}
		})
		change := handingOver(w)
		_, _, stop := start(t, w, store, change)
		awaitAsked(t, w, "one is asked", func() bool { return len(others(w)) == 1 })
		record := askedRecord(t, store).ID
		answer(w, "True")
		for range 20 {
			time.Sleep(time.Minute)
			assert.Equal(t, record, w.lockOf().Run)
			assert.Less(t, time.Since(w.lockOf().Renewed), 2*time.Minute, "it is renewed")
		}
		stop()
		running(t, w, store, change)
		time.Sleep(20 * time.Minute)
		assert.Equal(t, record, w.lockOf().Run)
		assert.False(t, w.lockOf().Expired())
		answer(w, "False")
		w.Recover()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		assert.Empty(t, w.lockOf(), "it is given back")
	})
}

// While somebody else has the Node, no other remediator is asked.
func TestNodeLockOfOthersDelaysTheRequest(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.Do(func(s *fake.State) {
			s.NodeLocks["n-1"] = fake.NodeLock{Holder: "node-maintenance", Renewed: time.Now().Add(10 * time.Minute)}
		})
		e := running(t, w, store, handingOver(w))
		time.Sleep(14 * time.Minute)
		assert.Empty(t, others(w))
		assert.Contains(t, gate(t, e, reason.Contested).Value, "node-maintenance")
		awaitAsked(t, w, "one is asked when the Lease has expired", func() bool { return len(others(w)) == 1 })
	})
}

// foreignLockKube answers that somebody has taken the Lease on the Node since it was looked at.
type foreignLockKube struct {
	engine.Kube
	until time.Time
}

func (k foreignLockKube) LockNode(ctx context.Context, r remediate.Run) (time.Duration, string, error) {
	if time.Now().Before(k.until) {
		return 0, "node-maintenance holds the Lease node-n-1", nil
	}
	return k.Kube.LockNode(ctx, r)
}

// Somebody takes the Node after the look, or the Lease cannot be taken: the request is not made, and no
// record of it stays.
func TestNoRequestWithoutTheNodeLock(t *testing.T) { // I22
	for name, c := range map[string]struct {
		change func(o *engine.Options, mended time.Time)
		code   reason.Code
		says   string
	}{
		"taken by somebody": {func(o *engine.Options, mended time.Time) {
			o.Clusters[0].Kube = foreignLockKube{o.Clusters[0].Kube, mended}
		}, reason.Contested, "node-maintenance"},
		"refused": {func(o *engine.Options, mended time.Time) {
			withLock(func(context.Context, remediate.Run) error {
				if time.Now().Before(mended) {
					return errors.New("forbidden")
				}
				return nil
			})(o)
		}, reason.RequestFailed, "keep other remediators away from Node n-1: forbidden"},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.installMedik8s()
			mended := time.Now().Add(30 * time.Minute)
			hand := handingOver(w)
			e := running(t, w, store, func(o *engine.Options) { hand(o); c.change(o, mended) })
			time.Sleep(29 * time.Minute)
			assert.Empty(t, others(w))
			assert.Contains(t, gate(t, e, c.code).Value, c.says)
			awaitAsked(t, w, "one is asked", func() bool { return len(others(w)) == 1 })
			assert.Len(t, askedRecord(t, store).Objects, 1)
		})
	}
}

// A Lease that is lost while a remediator works delays nothing that fenced does with the request.
func TestLostNodeLockDelaysNoEndOfARequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		running(t, w, store, handingOver(w))
		askedAndBegun(t, w)
		w.Do(func(s *fake.State) {
			s.NodeLocks["n-1"] = fake.NodeLock{Holder: "node-maintenance", Renewed: time.Now().Add(time.Hour)}
		})
		time.Sleep(10 * time.Minute)
		require.Len(t, others(w), 1)
		answer(w, "False")
		w.Recover()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		assert.Equal(t, "node-maintenance", w.lockOf().Holder)
	})
}

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
	})
}
