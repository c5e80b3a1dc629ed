package engine_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

var byHand = wire.Order{Cluster: "c", Node: "n-1", Actor: "ada (uid 1000)", Reason: "smoke"}

// byHandAt is the same order for another Node.
func byHandAt(node string) wire.Order {
	o := byHand
	o.Node = node
	return o
}

// dryRun is the order that only shows what it would do.
func dryRun(o wire.Order) wire.Order {
	o.DryRun = true
	return o
}

func TestFenceOffOnlyStaysOffUntilUnfence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck() // only people act here
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		o := byHand
		o.OffOnly = true
		out := accepted(t)(e.Fence(t.Context(), o))
		assert.Equal(t, order.Outcome{Run: out.Run, Joined: true}, accepted(t)(e.Fence(t.Context(), o)))
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Held, "OperatorOff")
		assert.Zero(t, w.Count(bmc.CommandOn))

		accepted(t)(e.Unfence(t.Context(), byHand))
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
	})
}

func TestDryRunAndRefusedFenceTouchNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		o := dryRun(byHand)
		assert.NotEmpty(t, accepted(t)(e.Fence(t.Context(), o)).Gates)

		w.setContested(remediate.Yes)
		_, err := e.Fence(t.Context(), byHand)
		var refusal *reason.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, reason.Contested, refusal.Reason, "a rival binds people too")
		o = byHand
		o.Node = "no-such-node"
		_, err = e.Fence(t.Context(), o)
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, reason.NoSuchNode, refusal.Reason)
		assert.Empty(t, w.Commands())
		assert.Empty(t, e.Runs(""))
	})
}

func TestArmingAnObservingClusterActsAndDisarmingStops(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const quietPeriod = 5 * time.Minute
		e := running(t, w, store, func(o *engine.Options) {
			o.Clusters[0].Mode, o.Guards.QuietPeriod = guard.ModeObserve, quietPeriod
		})
		time.Sleep(2 * quietPeriod)
		require.Empty(t, e.Runs("c"))
		dry := dryRun(byHand)
		must.Do(e.Arming.Arm(t.Context(), dry))(t)
		armed := must.Do(e.Arming.Arm(t.Context(), byHand))(t)
		assert.Equal(t, time.Now().Add(quietPeriod).Unix(), armed.Until.Unix())
		time.Sleep(quietPeriod - time.Second)
		require.Empty(t, e.Runs("c"), "the quiet period comes first")
		assert.Contains(t, must.Do(e.Arming.Arm(t.Context(), byHand))(t).Unchanged, "armed already")
		time.Sleep(3 * time.Second)
		require.Len(t, e.Runs("c"), 1)
		must.Do(e.Arming.Disarm(t.Context(), byHand))(t)
	})
}

// An order that joins a run, or that has nothing to change, is on record with who gave it and why; a dry run is no order. // I24
func TestOrdersThatChangeNothingAreOnRecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e, events, _ := start(t, w, store, nil)
		time.Sleep(time.Second)
		run := accepted(t)(e.Fence(t.Context(), byHand)).Run
		for _, o := range []wire.Order{dryRun(byHand), byHand} {
			require.True(t, accepted(t)(e.Fence(t.Context(), o)).Joined)
			require.NotEmpty(t, must.Do(e.Arming.Arm(t.Context(), o))(t).Unchanged)
		}
		joined := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Ordered && ev.Run == run })
		require.Len(t, joined, 1)
		assert.Equal(t, []string{byHand.Actor, byHand.Reason, "n-1"}, []string{joined[0].Actor, joined[0].Why, joined[0].Node})
		assert.Equal(t, 1, heard(t, events, " arms, although that changes nothing"))
	})
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		time.Sleep(time.Second)
		require.NotEmpty(t, must.Do(e.Arming.Disarm(t.Context(), byHand))(t).Unchanged)
		assert.Equal(t, 1, heard(t, events, "disarms, although that changes nothing"))
		must.Do(e.Arming.Arm(t.Context(), byHand))(t)
		require.NotEmpty(t, must.Do(e.Arming.Arm(t.Context(), byHand))(t).Unchanged)
		assert.Equal(t, 1, heard(t, events, " arms, although that changes nothing"))
	})
}

// disarm never claims to have stopped a mode that it does not stop. What arm stored for mode
// observe is removed there too.
func TestDisarmStopsNoOtherMode(t *testing.T) {
	refused := func(t *testing.T, e *engine.Engine) string {
		_, err := e.Arming.Disarm(t.Context(), byHand)
		r, is := reason.AsRefusal(err)
		require.True(t, is, "%v", err)
		require.Equal(t, reason.OrderRefused, r.Reason)
		return r.Message
	}
	for _, mode := range []string{guard.ModeEvaluate, guard.ModeRespond} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			in := func(mode string) func(*engine.Options) {
				return func(o *engine.Options) { o.Clusters[0].Mode, o.Clusters[0].Requests = mode, w.Requests() }
			}
			e, _, stop := start(t, w, store, in(guard.ModeObserve))
			time.Sleep(time.Second)
			require.Contains(t, must.Do(e.Arming.Disarm(t.Context(), byHand))(t).Unchanged, "is not armed")
			must.Do(e.Arming.Arm(t.Context(), byHand))(t)
			stop()

			e, _, stop = start(t, w, store, in(mode))
			time.Sleep(time.Second)
			assert.Contains(t, refused(t, e), "is in mode "+mode+", which disarm does not stop: it is disarmed only for mode observe")
			assert.Contains(t, refused(t, e), "is in mode "+mode+", which disarm does not stop: nothing changed")
			assert.True(t, e.Status()[0].Armed)
			stop()

			e = running(t, w, store, in(guard.ModeObserve))
			time.Sleep(time.Second)
			assert.False(t, e.Status()[0].Armed)
		})
	}
}

// Old runs are removed, and a backup a week after its run. // I21
func TestOldRunsAndBackupsArePruned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		r := stands(t, e, remediate.Done)
		stop()
		left := func(after time.Duration) (backups, runs int) {
			time.Sleep(after)
			e, _, stop := start(t, w, store, nil)
			time.Sleep(2 * time.Second)
			stop()
			saved := must.Do(state.Backups(t.Context(), store, r.ID))(t)
			stored := must.Do(state.LoadRuns(t.Context(), store))(t)
			require.Len(t, e.Runs("c"), len(stored))
			return len(saved), len(stored)
		}
		backups, runs := left(6 * 24 * time.Hour)
		assert.Equal(t, []int{1, 1}, []int{backups, runs}, "kept for seven days")
		backups, runs = left(2 * 24 * time.Hour)
		assert.Equal(t, []int{0, 1}, []int{backups, runs}, "the run is history for ninety")
		backups, runs = left(90 * 24 * time.Hour)
		assert.Equal(t, []int{0, 0}, []int{backups, runs})
	})
}

// What other remediators were asked in a cluster that is not configured any more is removed with its runs: nobody ends its records there. One that
// is not over stays, whatever its age. // I22
func TestOldRecordsOfARemovedClusterArePruned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		now := time.Now().UTC()
		for id, ended := range map[string]time.Time{"old": now.AddDate(0, 0, -91), "young": now.AddDate(0, 0, -89), "open": {}} {
			must.Do(escalate.Save(t.Context(), store, escalate.Record{ID: id, Target: remediate.Target{Cluster: "removed", Node: id}, Started: now.AddDate(-1, 0, 0), Ended: ended}))(t)
		}
		_, _, stop := start(t, w, store, func(o *engine.Options) { o.Escalation = asks(o, nil) })
		time.Sleep(2 * time.Second)
		stop()
		var left []string
		for _, r := range must.Do(escalate.Load(t.Context(), store))(t) {
			left = append(left, r.ID)
		}
		assert.ElementsMatch(t, []string{"young", "open"}, left)
	})
}

// until waits for the only run to stand at a step.
func until(t *testing.T, e *engine.Engine, step remediate.Step) remediate.Run {
	t.Helper()
	for range 100 * 60 {
		if runs := e.Runs("c"); len(runs) > 0 && runs[0].Step == step {
			return runs[0]
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Failf(t, "the step is not reached", "%s; runs: %+v", step, e.Runs("c"))
	return remediate.Run{}
}

func ofRun(r remediate.Run) wire.Order {
	return wire.Order{Run: r.ID, Actor: "ada", Reason: "enough"}
}

// An abort rolls back a run before the isolation, and completes it after that. // I20
func TestAbortAtEachStep(t *testing.T) {
	for _, tc := range []struct {
		at, end remediate.Step
		deleted int
	}{
		{remediate.PowerOff, remediate.Aborted, 0},
		{remediate.PowerOn, remediate.Done, 1},
		{remediate.AwaitNode, remediate.Done, 1},
	} {
		scene(t, string(tc.at), func(t *testing.T, w *world, store *failingStore) {
			e := running(t, w, store, nil)
			r := until(t, e, tc.at)
			assert.Equal(t, r.ID, accepted(t)(e.Abort(t.Context(), ofRun(r))).Run)
			w.pauseCheck()
			time.Sleep(10 * time.Minute)
			assert.Equal(t, tc.end, only(t, e).Step)
			assert.Equal(t, tc.deleted, w.Isolations())
			assert.True(t, w.On())
			refused(t, reason.NoRun)(e.Abort(t.Context(), ofRun(r)))
			refused(t, reason.NoRun)(e.Retry(t.Context(), ofRun(r)))
			r.ID = "of-nobody"
			refused(t, reason.NoSuchRun)(e.Abort(t.Context(), ofRun(r)))
		})
	}
}

// An order that arrives while a record is saved prevents the destructive write for which
// the record is saved: the order was given before that write.
func TestOrderDuringASaveStopsTheNextWrite(t *testing.T) {
	for _, tc := range []struct {
		write     remediate.Action
		end       remediate.Step
		off, gone int // commands, deletions
	}{
		{remediate.SendOff, remediate.Aborted, 0, 0},
		{remediate.IsolateNode, remediate.Aborted, 1, 0},
		{remediate.SendOn, remediate.Done, 1, 1},
		{remediate.RestoreTargetNode, remediate.Done, 1, 1},
	} {
		scene(t, string(tc.write), func(t *testing.T, w *world, inner *failingStore) {
			store := &stubborn{Store: inner}
			e := running(t, w, store, nil)
			answered := make(chan error, 1)
			var ordered atomic.Bool
			store.watch(func(run []byte) {
				if !bytes.Contains(run, []byte(`"`+tc.write+`"`)) || ordered.Swap(true) {
					return
				}
				go func() {
					_, err := e.Abort(t.Context(), ofRun(e.Runs("c")[0]))
					answered <- err
				}()
				time.Sleep(time.Second)
				w.pauseCheck() // no other run begins
			})
			time.Sleep(10 * time.Minute)
			require.NoError(t, <-answered)
			r := only(t, e)
			assert.Equal(t, tc.end, r.Step, "%s: %s", r.Reason, r.Note)
			assert.Equal(t, []int{tc.off, tc.gone}, []int{w.Count(bmc.CommandOff), w.Isolations()})
			assert.True(t, w.On())
		})
	}
}

// With AsIs a Held run ends, and its host stays as it is. For any other run AsIs is
// refused.
func TestAbortAsIs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		o := byHand
		o.OffOnly = true
		accepted(t)(e.Fence(t.Context(), o))
		asIs := ofRun(until(t, e, remediate.PowerOff))
		asIs.AsIs = true
		refused(t, reason.OrderRefused)(e.Abort(t.Context(), asIs))
		until(t, e, remediate.Held)
		accepted(t)(e.Abort(t.Context(), asIs))
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Aborted, "ClosedAsIs")
		assert.False(t, w.On())
		assert.Zero(t, w.Count(bmc.CommandOn))
	})
}

// A retry continues a Held run, and every reason is evaluated again.
func TestRetryOfAHeldRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e := running(t, w, store, nil)
		r := until(t, e, remediate.PowerOff)
		refused(t, reason.OrderRefused)(e.Retry(t.Context(), ofRun(r)))
		until(t, e, remediate.Held)
		w.SetFault(fake.NoFault)
		e.ApplyConfig.Policies("c", cluster.Files{Refused: "policies.d/a.yaml:4: spec.limt: unknown key"})
		time.Sleep(time.Second)                                         // the deciding loop takes it
		refused(t, reason.FilesRefused)(e.Retry(t.Context(), ofRun(r))) // it may limit how many are off // I18
		e.ApplyConfig.Policies("c", cluster.Files{})
		time.Sleep(time.Second)
		accepted(t)(e.Retry(t.Context(), ofRun(r)))
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
	})
}

// If the store refuses, the order fails: an order is durable when it is answered. // I19
func TestOrdersAreDurableWhenAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		r := until(t, e, remediate.AwaitNode)
		store.set(true)
		_, err := e.Abort(t.Context(), ofRun(r))
		require.ErrorContains(t, err, "disk full")
		store.set(false)
		time.Sleep(10 * time.Minute)
		assert.Nil(t, only(t, e).Abort)
	})
}

// What is reported in the cluster is looked up by name: a run also after its end, and an
// object only while the view has it.
func TestLookup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		look, r := engine.NewLookup(e), only(t, e)
		require.Equal(t, remediate.Done, r.Step)
		found, known := look.Run("c", r.ID)
		assert.True(t, known)
		assert.Equal(t, r, found)
		now, there := look.Target("c", r.Target.Node, "")
		assert.True(t, there)
		assert.Equal(t, r.NewNodeUID, now.NodeUID)
		uid, machine := look.Present("c", r.Target)
		assert.Equal(t, r.NewNodeUID, uid)
		assert.Equal(t, r.Target.Machine != "", machine)

		_, known = look.Run("c", "r-0")
		assert.False(t, known)
		_, there = look.Target("c", "", "ns/no-such-machine")
		assert.False(t, there)
		_, known = look.Run("another", r.ID)
		_, there = look.Target("another", r.Target.Node, "")
		uid, machine = look.Present("another", r.Target)
		assert.Equal(t, []any{false, false, "", false}, []any{known, there, uid, machine})
	})
}

// endedBy calls a function while the end of a run is stored, before anybody knows of that.
type endedBy struct {
	*failingStore
	then func()
}

func (s *endedBy) Put(ctx context.Context, r state.Record) (uint64, error) {
	version, err := s.failingStore.Put(ctx, r)
	if r.Kind == state.KindRun && strings.Contains(string(r.Data), `"step":"Done"`) && s.then != nil {
		s.then()
	}
	return version, err
}

// An order that comes in the moment in which the run ends is refused: nobody carries it out any more, and the person would wait for it.
func TestOrderToARunThatJustEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ends, answer := &endedBy{failingStore: store}, make(chan error, 1)
		e := running(t, w, ends, nil)
		ends.then = func() {
			ends.then = nil
			go func() {
				_, err := e.Unfence(t.Context(), byHand)
				answer <- err
			}()
			time.Sleep(time.Millisecond) // until the order waits for the worker
		}
		until(t, e, remediate.Done)
		refusedFor(t, <-answer, reason.NoRun)
		assert.Nil(t, only(t, e).Unfence)
	})
}
