package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// lie lets n-1's BMC say Off while its kubelet lives, until the run is Held.
func lie(t *testing.T, w *world, store state.Store) (*engine.Engine, func()) {
	w.SetLeaseMoving(true)
	e, _, stop := start(t, w, store, nil)
	time.Sleep(4 * time.Minute)
	stands(t, e, remediate.Held, reason.FalseOff)
	require.Zero(t, w.Isolations())
	return e, stop
}

func freezesIn(t *testing.T, store state.Store) []state.Freeze {
	t.Helper()
	return must.Do(statetest.LoadFreezes(t.Context(), store))(t)
}

// A host that ran while its BMC read Off stays frozen until a person releases it, whatever
// happens to its run and to the daemon. // I5
func TestFalseOffFreezesTheHost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, stop := lie(t, w, store)
		require.Len(t, freezesIn(t, store), 1)
		accepted(t)(e.Unfence(t.Context(), byHand))
		time.Sleep(2 * time.Minute)
		require.Equal(t, remediate.Aborted, only(t, e).Step)
		stop()

		w.SetLeaseMoving(false)
		w.Hang()
		e = running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		require.Len(t, e.Runs("c"), 1, "no further run")
		assert.Contains(t, gate(t, e, reason.Frozen).Value, "run "+only(t, e).ID)
		refused(t, reason.Frozen)(e.Fence(t.Context(), byHand))
		s := subject(t, e)
		assert.Equal(t, reason.Frozen, e.Forbidden(t.Context(), s)[0].Reason)

		require.NoError(t, unfreeze(t, e, byHand))
		refusedFor(t, unfreeze(t, e, byHand), reason.NotFrozen)
		time.Sleep(2 * time.Minute)
		assert.Len(t, e.Runs("c"), 2)
		assert.Equal(t, "ada (uid 1000)", freezesIn(t, store)[0].ReleasedBy)
	})
}

// A host that is left off on purpose, after its Node was isolated, is frozen as well when its kubelet turns out to live:
// also if the store did not answer at that moment, and nothing reads Off any more when it does. // I5
func TestHostThatIsLeftOffIsFrozen(t *testing.T) {
	for _, outage := range []time.Duration{0, time.Minute} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.pauseCheck() // only people act here
			e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Isolation = remediate.IsolateTaint })
			time.Sleep(time.Second)
			o := byHand
			o.OffOnly = true
			accepted(t)(e.Fence(t.Context(), o))
			time.Sleep(10 * time.Minute)
			stands(t, e, remediate.Held, reason.OperatorOff)

			store.set(outage > 0)
			w.SetLeaseMoving(true)
			time.Sleep(30 * time.Second)
			w.FailReads(noAnswer())
			time.Sleep(outage)
			store.set(false)
			time.Sleep(time.Minute)
			stands(t, e, remediate.Held, reason.FalseOff)
			require.Len(t, freezesIn(t, store), 1)
			assert.False(t, only(t, e).Isolated.IsZero())
			assert.Equal(t, []int{1, 0}, []int{w.Count(bmc.CommandOff), w.Count(bmc.CommandOn)})
			assert.NotNil(t, e.Forbidden(t.Context(), subject(t, e)), "frozen")
		})
	}
}

// After a person has released a freeze, a restart does not freeze the host again, although
// the run that found the false Off is still Held.
func TestUnfreezeOutlivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, stop := lie(t, w, store)
		require.NoError(t, unfreeze(t, e, byHand))
		stop()
		e = running(t, w, store, nil)
		time.Sleep(time.Second)
		require.Equal(t, remediate.Held, only(t, e).Step)
		refusedFor(t, unfreeze(t, e, byHand), reason.NotFrozen)
	})
}

// If a crash prevented the write of a freeze, the freeze is made from the run that found
// the false Off.
func TestMissingFreezeIsMadeFromTheRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, stop := lie(t, w, store)
		stop()
		require.NoError(t, state.NewTable(state.Freezes, func(state.Freeze) {}).Delete(t.Context(), store, freezesIn(t, store)[0]))
		running(t, w, store, nil)
		time.Sleep(time.Second)
		assert.Len(t, freezesIn(t, store), 1)
	})
}

// noFreezes is a store that refuses freezes only.
type noFreezes struct{ state.Store }

func (s noFreezes) Put(ctx context.Context, r state.Record) (uint64, error) {
	if r.Kind == state.KindFreeze {
		return 0, errors.New("disk full")
	}
	return s.Store.Put(ctx, r)
}

// The freeze is durable before a run becomes Held for a false Off. // I19
func TestFreezeIsSavedBeforeTheRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetLeaseMoving(true)
		e := running(t, w, noFreezes{store}, nil)
		time.Sleep(4 * time.Minute)
		assert.Equal(t, remediate.PowerOff, only(t, e).Step)
		assert.Zero(t, w.Isolations())
	})
}

const class = "dell poweredge 6.10"

// lied stores that a BMC of the class said Off falsely about a host elsewhere.
func lied(t *testing.T, store state.Store, node, class string) {
	t.Helper()
	must.Do(statetest.SaveFreeze(t.Context(), store, state.Freeze{RunID: "r-" + node, Host: "c/" + node, Cluster: "c", Node: node, Class: class, At: time.Now().UTC()}))(t)
}

// tellClass lets a health check find the model and firmware of n-1's BMC.
func tellClass(t *testing.T, e *engine.Engine) {
	t.Helper()
	s := subject(t, e)
	e.Checked(t.Context(), hosts.Checked{Subject: s, At: time.Now(), Description: bmc.Description{Manufacturer: "Dell", Model: "PowerEdge", Firmware: "6.10"}})
}

// From the second host with a false Off on, no BMC of that model and firmware is
// trusted. // I5
func TestClassIsFrozenAtTheSecondHost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lied(t, store, "other-0", class)
		lied(t, store, "other-1", class)
		lied(t, store, "other-2", "another")
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		tellClass(t, e)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.ClassFrozen).Value, "c/other-0, c/other-1")
		refused(t, reason.ClassFrozen)(e.Fence(t.Context(), byHand))
		err := unfreeze(t, e, byHand)
		refusedFor(t, err, reason.NotFrozen)
		assert.ErrorContains(t, err, `no freeze stands on n-1 itself, but it is frozen all the same: BMCs of "dell poweredge 6.10" read Off while their hosts ran: c/other-0, c/other-1.`)
		assert.ErrorContains(t, err, "fencectl bmc unfreeze other-0 --cluster c --reason WHY; fencectl bmc unfreeze other-1 --cluster c --reason WHY")

		require.NoError(t, unfreeze(t, e, byHandAt("other-1")))
		time.Sleep(2 * time.Minute)
		assert.Len(t, e.Runs("c"), 1, "one host alone freezes no class")
	})
}

// A host that got another name, and another entry of hosts.d, is frozen all the same, because its BMC is. No run begins on it only
// to be dropped, what is shown says so, and the freeze ends under the new name. // I5
func TestFreezeIsOnTheDevicesOfARenamedEntry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		must.Do(statetest.SaveFreeze(t.Context(), store, state.Freeze{RunID: "r-old", Host: "c/old", Cluster: "c", Node: "old", Devices: "192.0.2.1", At: time.Now().UTC()}))(t)
		e := running(t, w, store, func(o *engine.Options) { o.Hosts = listing{"n-1": at("n-1", "192.0.2.1")} })
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Frozen).Value, "run r-old")
		refused(t, reason.Frozen)(e.Fence(t.Context(), byHand))
		assert.Contains(t, e.Forbidden(t.Context(), subject(t, e)), reason.Refusal{Reason: reason.Frozen, Message: gate(t, e, reason.Frozen).Value})

		assert.Empty(t, accepted(t)(e.Unfreeze(t.Context(), byHand)).Still)
		time.Sleep(2 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// A run that may not delete the Machine because the class of its BMC was frozen says so, once. // I5, L4
func TestFreezeThatKeepsAMachineIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		w.ownMachines()
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Reprovision, o.Run.MaxAttempts = true, 1 })
		until(t, e, remediate.AwaitNode)
		lied(t, store, "other-0", class)
		lied(t, store, "other-1", class)
		tellClass(t, e)
		store.syncChanges()
		until(t, e, remediate.Reprovision)
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Reprovision)
		var told []reason.Code
		for _, ev := range must.Do(events.After(t.Context(), 0))(t) {
			if ev.Type == event.Failed {
				told = append(told, ev.Reason)
				assert.Contains(t, ev.Message, "c/other-0, c/other-1")
			}
		}
		assert.Equal(t, []reason.Code{reason.ClassFrozen}, told)
	})
}

// After a restart the model and firmware of a BMC are known from the pin that was stored
// while the host was healthy.
func TestClassIsPinned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		tellClass(t, e)
		checkHealthy(t, e)
		stop()
		lied(t, store, "other-0", class)
		lied(t, store, "other-1", class)
		w.Hang()
		e = running(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.ClassFrozen)
	})
}

// A run that has not acted yet is dropped when its BMC's class is frozen. // I5
func TestRunOfAFrozenClassIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lied(t, store, "other-0", class)
		lied(t, store, "other-1", class)
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		s := subject(t, e)
		w.OnLook(func(looks int) {
			if looks == 2 { // the probe was the first
				e.Checked(t.Context(), hosts.Checked{Subject: s, Description: bmc.Description{Manufacturer: "Dell", Model: "PowerEdge", Firmware: "6.10"}})
			}
		})
		time.Sleep(untilOff + time.Second)
		r := stands(t, e, remediate.Aborted)
		assert.Contains(t, r.Note, "c/other-0, c/other-1")
		assert.Empty(t, w.Commands())
	})
}

// When its BMC's class is frozen, an open run does nothing destructive any longer, and its
// host is powered on again. // I5
func TestOpenRunOfAFrozenClassIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lied(t, store, "other-0", class)
		lied(t, store, "other-1", class)
		e := running(t, w, store, nil)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		tellClass(t, e)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.True(t, r.Step == remediate.Held || r.Step == remediate.Aborted, "%s: %s", r.Step, r.Note)
		assert.Zero(t, w.Isolations())
		assert.True(t, w.On())
	})
}

// The answer to a release says which other freeze remains.
func TestUnfreezeReportsTheRemainingFreeze(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		for _, node := range []string{"n-1", "other-0", "other-1"} {
			lied(t, store, node, class)
		}
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		tellClass(t, e)
		assert.Contains(t, accepted(t)(e.Unfreeze(t.Context(), byHand)).Still, "c/other-0, c/other-1")
		assert.Contains(t, stillFrozen(t, e, byHand.Node), "c/other-0, c/other-1")
		require.NoError(t, unfreeze(t, e, byHandAt("other-1")))
		assert.Empty(t, stillFrozen(t, e, byHand.Node))
	})
}

func unfreeze(t *testing.T, e *engine.Engine, o wire.Order) error {
	t.Helper()
	_, err := e.Unfreeze(t.Context(), o)
	return err
}

// stillFrozen is what the gate says of a Node's host that must not be switched off; "" when
// it may.
func stillFrozen(t *testing.T, e *engine.Engine, node string) string {
	t.Helper()
	x := must.Do(e.Explain(t.Context(), "c", node))(t)
	i := slices.IndexFunc(x.Gates, func(g reason.Gate) bool { return g.Name == "frozen" })
	require.GreaterOrEqual(t, i, 0)
	if x.Gates[i].Pass {
		return ""
	}
	return x.Gates[i].Value
}

// frozenAct tells whether each destructive write would be over for a process that goes on some seconds after it was allowed.
type frozenAct struct {
	engine.Kube
	over map[remediate.Action]error
}

func (k frozenAct) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	if a.Destructive() {
		if err := bmc.Over(ctx, time.Now()); err != nil {
			return err
		}
		k.over[a] = bmc.Over(ctx, time.Now().Add(power.ProofMaxAge))
	}
	return k.Kube.Act(ctx, r, a, backups, b)
}

// A process that was frozen right before a destructive write knows that the proof on which it was decided has grown old, before
// anything has cut the write off. // I1, I19
func TestDestructiveWriteEndsWithItsProof(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		k := frozenAct{w, map[remediate.Action]error{}}
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = k })
		time.Sleep(30 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
		assert.Equal(t, map[remediate.Action]error{remediate.IsolateNode: context.DeadlineExceeded}, k.over)
	})
}

// A BMC reads Off while its host runs, and does not answer any more when the Node is isolated. The kubelet registers the Node again: that host is not
// the one whose Machine is to be replaced because no power cycle helped. // I5, I14
func TestRunningHostOfADeadBMCIsNotReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		w.SetFault(fake.Liar)
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Reprovision = true })
		r := until(t, e, remediate.PowerOn)
		w.FailReads(noAnswer())
		w.Do(func(s *fake.State) {
			s.PutNode(fake.Node{Name: "n-1", BootID: r.Target.BootID, SystemUUID: hostUUID, Ready: "True", Since: time.Now()})
		})
		time.Sleep(30 * time.Minute)
		stands(t, e, remediate.Held, reason.FalseOff)
		assert.Empty(t, w.Deprovisioned())
		assert.Len(t, freezesIn(t, store), 1)
	})
}
