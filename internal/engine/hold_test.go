package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/stop"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

func (s *failingStore) cluster(t *testing.T, name string) state.Cluster {
	t.Helper()
	c := must.Do(statetest.LoadCluster(t.Context(), s, name))(t)
	return c
}

func heldFor(length time.Duration) wire.Order {
	o := byHand
	o.For = wire.Span(length)
	return o
}

// A hold prevents fencing of one Node until it expires, also across a restart.
func TestHoldExpires(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		out := accepted(t)(e.Hold(t.Context(), heldFor(time.Hour)))
		assert.Equal(t, order.Outcome{Until: time.Now().UTC().Add(time.Hour)}, out)
		out = accepted(t)(e.Hold(t.Context(), heldFor(time.Minute)))
		assert.Equal(t, time.Now().UTC().Add(time.Hour), out.Until, "a hold that stands is not shortened")
		time.Sleep(30 * time.Minute)
		stop()

		e, events, _ := start(t, w, store, nil)
		time.Sleep(29 * time.Minute)
		require.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Hold).Value, "ada")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, heard(t, events, "the hold by ada"))
		assert.Empty(t, e.Holds("c"))
	})
}

// Names that do not exist fill no store, and keep nobody from holding a Node that exists.
func TestHoldsOfNodesThatDoNotExistAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		hold := func(name string) error {
			o := byHand
			if o.Node = name; strings.Contains(name, "/") {
				o.Node, o.Machine = "", name
			}
			_, err := e.Hold(t.Context(), o)
			return err
		}
		release := func(name string) {
			o := byHand
			o.Node = name
			accepted(t)(e.ReleaseHold(t.Context(), o))
		}
		stored := func() int {
			list := must.Do(store.List(t.Context(), state.KindHold))(t)
			return len(list)
		}
		for i := range manyHolds {
			require.NoError(t, hold(fmt.Sprint("no-", i)))
		}
		for range 3 { // as one who holds and releases for days
			refusedFor(t, hold("typo"), reason.TooManyHolds)
			refusedFor(t, hold("ns/typo"), reason.TooManyHolds)
		}
		require.Equal(t, manyHolds, stored())
		require.NoError(t, hold("no-7"), "it is held already")
		require.NoError(t, hold("n-1"), "a Node that exists can always be held")
		require.NoError(t, hold("ns/m-1"))
		for i := range 10 {
			release(fmt.Sprint("no-", i))
		}
		for i := range 10 {
			require.NoError(t, hold(fmt.Sprint("other-", i+10)))
		}
		assert.Equal(t, manyHolds+2, stored(), "the holds that have ended made room")
		refusedFor(t, hold("typo"), reason.TooManyHolds)
	})
}

const manyHolds = stop.MaxUnseenHolds

func TestHoldBindsPeopleAndIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		refused(t, reason.NoHold)(e.ReleaseHold(t.Context(), byHand))
		accepted(t)(e.Hold(t.Context(), heldFor(0)))
		refusedByHand(t, e, reason.Hold)
		other := byHandAt("other-0")
		out := accepted(t)(e.Hold(t.Context(), other))
		assert.False(t, out.Unseen)
		other.Node = "typo"
		out = accepted(t)(e.Hold(t.Context(), other)) // a stop is always allowed
		assert.True(t, out.Unseen)

		accepted(t)(e.ReleaseHold(t.Context(), byHand))
		refused(t, reason.NoHold)(e.ReleaseHold(t.Context(), byHand))
		accepted(t)(e.Fence(t.Context(), byHand))
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// After the isolation a held host is still brought back. // I20
func TestHoldAfterTheIsolationLeavesNoHostOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		await(t, func() bool { return w.Isolations() > 0 })
		accepted(t)(e.Hold(t.Context(), byHand))
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Count(bmc.CommandOn))
	})
}

// Holds and pauses that people set at another instance apply here, too.
func TestStopsOfAnotherInstanceApply(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		held := must.Do(statetest.SaveHold(t.Context(), store, state.Hold{Cluster: "c", Node: "n-1", By: "bea", Reason: "disk", At: time.Now()}))(t)
		store.syncChanges()
		require.Len(t, e.Holds("c"), 1)
		held.Reason = "disk and fan"
		must.Do(statetest.SaveHold(t.Context(), store, held))(t)
		must.Do(e.ReleaseHold(t.Context(), byHand))(t) // on a version that is not the newest any more
		store.syncChanges()
		require.Empty(t, e.Holds("c"))

		c := store.cluster(t, "c")
		c.Paused, c.PausedBy = true, "bea"
		must.Do(statetest.SaveCluster(t.Context(), store, c))(t)
		store.syncChanges()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Paused).Value, "bea")
	})
}

// A quarantine does not stop people, and is separate from a person's hold: releasing the
// hold does not end the quarantine. // I15
func TestQuarantineAndHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		until := time.Now().UTC().Add(24 * time.Hour)
		must.Do(statetest.SaveHold(t.Context(), store, state.Hold{Cluster: "c", Node: "n-1", By: "fenced", Reason: "restless", Quarantine: true, At: time.Now(), Until: until}))(t)
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		accepted(t)(e.Fence(t.Context(), dryRun(byHand)))
		out := accepted(t)(e.Hold(t.Context(), heldFor(time.Hour)))
		assert.Equal(t, order.Outcome{Until: time.Now().UTC().Add(time.Hour)}, out)
		refusedByHand(t, e, reason.Hold)
		holds := e.Holds("c")
		require.Len(t, holds, 2)
		assert.Equal(t, []bool{false, true}, []bool{holds[0].Quarantine, holds[1].Quarantine})

		out = accepted(t)(e.ReleaseHold(t.Context(), byHand))
		assert.False(t, out.Quarantine)
		assert.Contains(t, out.Still, "in quarantine until "+until.Format(time.RFC3339))
		holds = e.Holds("c")
		require.Len(t, holds, 1)
		assert.True(t, holds[0].Quarantine)
		assert.Equal(t, until, holds[0].Until)

		out = accepted(t)(e.ReleaseHold(t.Context(), byHand))
		assert.Equal(t, order.Outcome{Quarantine: true}, out)
		assert.Empty(t, e.Holds("c"))
		refused(t, reason.NoHold)(e.ReleaseHold(t.Context(), byHand))
	})
}

// A second hold or pause that does not last longer leaves the name and reason of the
// first. One that lasts longer replaces it. // I23
func TestLongerStopKeepsItsActor(t *testing.T) {
	for name, c := range map[string]struct {
		give func(*engine.Engine, context.Context, wire.Order) (order.Outcome, error)
		why  func(*engine.Engine) string
	}{
		"hold": {
			(*engine.Engine).Hold,
			func(e *engine.Engine) string { return e.Holds("c")[0].By + ": " + e.Holds("c")[0].Reason },
		},
		"pause": {
			(*engine.Engine).Pause,
			func(e *engine.Engine) string { return e.Status()[0].Paused },
		},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			e := running(t, w, store, nil)
			time.Sleep(time.Second)
			first, second := heldFor(time.Hour), heldFor(time.Minute)
			second.Actor, second.Reason = "bea", "fan"
			out := must.Do(c.give(e, t.Context(), first))(t)
			assert.Empty(t, out.Earlier)
			until := out.Until
			out = must.Do(c.give(e, t.Context(), second))(t)
			assert.Equal(t, until, out.Until)
			assert.Equal(t, first.Actor+": "+first.Reason, out.Earlier)
			assert.Contains(t, c.why(e), first.Reason)
			second.For = wire.Span(2 * time.Hour)
			out = must.Do(c.give(e, t.Context(), second))(t)
			assert.Empty(t, out.Earlier)
			assert.Contains(t, c.why(e), "bea")
			assert.Contains(t, c.why(e), "fan")
		})
	}
}

// Resuming all clusters leaves the pause of one cluster, and the reverse. The answer says
// which pause remains, and how to end it. // I23
func TestResumeSaysHowTheOtherPauseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		all, one := heldFor(0), heldFor(0)
		all.Cluster, all.Node, one.Node = state.AllClusters, "", ""
		for _, o := range []wire.Order{all, one} {
			accepted(t)(e.Pause(t.Context(), o))
		}
		out := accepted(t)(e.Resume(t.Context(), one))
		assert.Contains(t, out.Still, "everything is paused by ada")
		assert.Contains(t, out.Still, "(to end that: fencectl resume --reason WHY)")
		accepted(t)(e.Pause(t.Context(), one))
		out = accepted(t)(e.Resume(t.Context(), all))
		assert.Contains(t, out.Still, "cluster c is paused by ada")
		assert.Contains(t, out.Still, "(to end that: fencectl resume --cluster c --reason WHY)")
	})
}

// A run begins for a Machine that has no Node. Then the host registers, and does not get well. A person who
// holds the Node stops the run in its later attempts too, although the record knows no Node. So does an administrator who
// protects it. // I13, I23
func TestHoldOfTheNodeStopsTheRunOfItsMachine(t *testing.T) {
	most := 4 * time.Hour // that the next attempt may take; as long as it took where nobody stops it
	for _, by := range []string{"", "hold", "hosts.d"} {
		held := by != ""
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			neverJoined(w)
			w.SetBootTime(never)
			e := running(t, w, store, waiting)
			time.Sleep(20 * time.Minute)
			r := stands(t, e, remediate.Waiting)
			require.Empty(t, r.Target.Node)
			w.Do(func(s *fake.State) { // it registers at last, and its kubelet dies
				s.PutNode(fake.Node{Name: "n-1", BootID: "boot-2", SystemUUID: hostUUID, Ready: "Unknown", Since: time.Now()})
				s.ChangeMachine("n-1", func(m *policy.Machine) { m.NodeName, m.Phase = "n-1", "Running" })
			})
			switch by {
			case "hosts.d":
				w.Do(func(s *fake.State) { s.Entries["n-1"] = bmc.Host{Protected: true} })
			case "hold":
				accepted(t)(e.Hold(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "disk", For: wire.Span(48 * time.Hour)}))
			}
			offs, locked := w.Count(bmc.CommandOff), false
			for age := time.Duration(0); age < most; age += time.Minute {
				time.Sleep(time.Minute)
				w.Do(func(s *fake.State) { locked = locked || fake.Held(s.Metal["h-1"]) })
				if !held && w.Count(bmc.CommandOff) > offs {
					most = age + 10*time.Minute
					break
				}
			}
			assert.Equal(t, held, w.Count(bmc.CommandOff) == offs)
			assert.Equal(t, held, !locked, "the power lock is a power command")
			if by == "hold" {
				refused(t, reason.Hold)(e.Retry(t.Context(), ofRun(r)))
			}
		})
	}
}

// A release binds under each name, too: that of a Machine without a Node lets the run of the Machine begin again, which
// the daily limit had stopped. // I15, I23
func TestReleaseOfTheMachineLetsItsRunGoOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		neverJoined(w)
		w.SetBootTime(never)
		e := running(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts, o.Guards.MaxFencesPerDay = 1, 1
		})
		time.Sleep(5 * time.Hour)
		stands(t, e, remediate.Waiting)
		offs := w.Count(bmc.CommandOff)
		require.Equal(t, 1, offs)

		of := wire.Order{Cluster: "c", Machine: "ns/m-1", Actor: "ada", Reason: "disk replaced", For: wire.Span(time.Hour)}
		accepted(t)(e.Hold(t.Context(), of))
		accepted(t)(e.ReleaseHold(t.Context(), of))
		time.Sleep(10 * time.Minute)
		assert.Equal(t, offs+1, w.Count(bmc.CommandOff))
	})
}
