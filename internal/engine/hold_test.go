package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
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
	return must.Do(statetest.LoadCluster(t.Context(), s, name))(t)
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
		out := accepted(t)(e.Hold(t.Context(), byHand))
		assert.Equal(t, only(t, e).ID, out.Run, "the host will be switched on, maybe in the hands of the person")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Count(bmc.CommandOn))
		assert.Empty(t, accepted(t)(e.Hold(t.Context(), byHand)).Run)
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

// racks tells the engine which label is a rack.
func racks(o *engine.Options) { o.Clusters[0].RackKey = "rack" }

// ofRack is an order of ada about all Nodes of a rack.
func ofRack(verb wire.Verb, name string, length time.Duration) wire.Order {
	return wire.Order{Verb: verb, Cluster: "c", Actor: "ada", Reason: "power feed", For: wire.Span(length), Group: wire.Group{Rack: name}}
}

// namesIn are the Nodes of an answer that the order changed.
func namesIn(out order.Outcome) (changed []string) {
	for _, n := range out.Nodes {
		if n.Changed {
			changed = append(changed, n.Node)
		}
	}
	return changed
}

// moveTo puts a Node into another rack.
func (w *world) moveTo(node, to string) {
	w.Do(func(s *fake.State) {
		s.ChangeNode(node, func(n *fake.Node) { n.Labels = map[string]string{"rack": to} })
	})
}

// A dead node in a held rack is not fenced until the end that all its Nodes have, also across a restart. Then it is. // I23
func TestHeldRackIsFencedAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, stop := start(t, w, store, racks)
		time.Sleep(time.Second)
		end := time.Now().UTC().Add(time.Hour)
		out := accepted(t)(e.Hold(t.Context(), ofRack(wire.Hold, "r1", time.Hour)))
		assert.Equal(t, end, out.Until)
		assert.Equal(t, "rack=r1", out.Selector)
		assert.Equal(t, []string{"n-1", "other-0", "other-1", "other-2"}, namesIn(out))
		assert.Equal(t, 5, len(eventsOf(t, events, func(ev event.Event) bool {
			return ev.Type == event.Ordered && ev.Actor == "ada" && ev.Cluster == "c" && ev.Why == "power feed"
		})), "the order, and each Node")
		time.Sleep(30 * time.Minute)
		stop()

		e, _, _ = start(t, w, store, racks)
		time.Sleep(29 * time.Minute)
		require.Empty(t, e.Runs("c"))
		holds := e.Holds("c")
		require.Len(t, holds, 4)
		for _, h := range holds {
			assert.Equal(t, []any{"rack=r1", end}, []any{h.Selector, h.Until}, h.Node)
		}
		assert.Contains(t, gate(t, e, reason.Hold).Value, "power feed")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Empty(t, e.Holds("c"))
	})
}

// A hold of a rack is about the Nodes that are there now. It shortens no hold, and its release ends no other one.
func TestReleaseOfARackEndsItsHoldsOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.moveTo("other-2", "r2")
		e := running(t, w, store, racks)
		time.Sleep(time.Second)
		refused(t, reason.NoHold)(e.ReleaseHold(t.Context(), ofRack(wire.Release, "r1", 0)))
		disk := wire.Order{Verb: wire.Hold, Cluster: "c", Node: "other-0", Actor: "bea", Reason: "disk"}
		accepted(t)(e.Hold(t.Context(), disk))

		dry := ofRack(wire.Hold, "r1", time.Hour)
		dry.DryRun = true
		out := accepted(t)(e.Hold(t.Context(), dry))
		assert.Equal(t, []string{"n-1", "other-1"}, namesIn(out))
		require.Len(t, e.Holds("c"), 1, "a dry run holds nothing")

		out = accepted(t)(e.Hold(t.Context(), ofRack(wire.Hold, "r1", time.Hour)))
		assert.Equal(t, []string{"n-1", "other-1"}, namesIn(out))
		assert.Equal(t, wire.GroupNode{Node: "other-0", Held: true, Note: "an earlier hold that ends no earlier stays, by bea: disk"}, out.Nodes[1])
		refusedByHand(t, e, reason.Hold)

		w.moveTo("other-1", "r2") // and other-2 into this one
		w.moveTo("other-2", "r1")
		time.Sleep(time.Second)
		require.Len(t, e.Holds("c"), 3, "who comes later is not held")
		dry = ofRack(wire.Release, "r1", 0)
		dry.DryRun = true
		out = accepted(t)(e.ReleaseHold(t.Context(), dry))
		assert.Equal(t, []string{"n-1", "other-1"}, namesIn(out))
		require.Len(t, e.Holds("c"), 3)
		out = accepted(t)(e.ReleaseHold(t.Context(), ofRack(wire.Release, "r1", 0)))
		assert.Equal(t, []wire.GroupNode{
			{Node: "n-1", Changed: true}, {Node: "other-0", Held: true, Note: "held by bea: disk"}, {Node: "other-1", Changed: true},
		}, out.Nodes)
		holds := e.Holds("c")
		require.Len(t, holds, 1)
		assert.Equal(t, []string{"other-0", "bea"}, []string{holds[0].Node, holds[0].By})
		_, err := e.ReleaseHold(t.Context(), ofRack(wire.Release, "r1", 0))
		assert.ErrorContains(t, err, "other-0 is held by bea: disk; release each by its name: other-0")
	})
}

// A Node has one hold. Who holds its rack for longer is told whose hold that takes the place of.
func TestHoldOfARackNamesTheHoldThatItReplaces(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e := running(t, w, store, racks)
		time.Sleep(time.Second)
		accepted(t)(e.Hold(t.Context(), wire.Order{Verb: wire.Hold, Cluster: "c", Node: "other-0", Actor: "bea", Reason: "disk", For: wire.Span(time.Hour)}))
		note := "in place of the hold until " + time.Now().UTC().Add(time.Hour).Format(time.RFC3339) + " by bea: disk; the release of these Nodes ends both"
		for _, dry := range []bool{true, false} {
			o := ofRack(wire.Hold, "r1", 0)
			o.DryRun = dry
			out := accepted(t)(e.Hold(t.Context(), o))
			assert.Equal(t, wire.GroupNode{Node: "other-0", Changed: true, Held: true, Note: note}, out.Nodes[1])
			assert.Empty(t, out.Nodes[0].Note)
		}
		assert.Empty(t, accepted(t)(e.Hold(t.Context(), ofRack(wire.Hold, "r1", 0))).Nodes[1].Note, "its own hold")
	})
}

// Labels that no Node has are an error that names those that Nodes have.
func TestHoldOfARackThatDoesNotExist(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.setUnsynced(true)
		e := running(t, w, store, racks)
		time.Sleep(time.Minute)
		refused(t, reason.NotSynced)(e.Hold(t.Context(), ofRack(wire.Hold, "r1", 0)))
		w.setUnsynced(false)
		time.Sleep(time.Minute)
		refused(t, reason.NoSuchNode)(e.Hold(t.Context(), ofRack(wire.Hold, "r9", 0)))
		_, err := e.Hold(t.Context(), ofRack(wire.Hold, "r9", 0))
		assert.ErrorContains(t, err, "no Node has rack=r9; the values of rack are r1")
		assert.Empty(t, e.Holds("c"))
	})
}

// A Node that fenced has deleted is in its rack still, and the answer names its run. Whether a Machine without a Node is
// in the rack, nobody knows: the answer names it.
func TestHoldOfARackFindsADeletedNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, racks)
		await(t, func() bool { return w.Isolations() > 0 })
		w.Do(func(s *fake.State) { s.RemoveNode("other-0") })
		time.Sleep(time.Second)
		out := accepted(t)(e.Hold(t.Context(), ofRack(wire.Hold, "r1", time.Hour)))
		assert.Equal(t, []string{"n-1", "other-1", "other-2"}, namesIn(out))
		assert.Equal(t, only(t, e).ID, out.Nodes[0].Run)
		assert.Equal(t, []string{"ns/other-0"}, out.Unlabelled)
	})
}

// While the store refuses, the whole rack is held by this daemon, which says so and saves the holds later. A release
// that cannot be saved says who stays held. // I23
func TestHoldOfARackBindsBeforeItIsSaved(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e := running(t, w, store, racks)
		time.Sleep(time.Second)
		saved := func() int { return len(must.Do(store.List(t.Context(), state.KindHold))(t)) }
		store.set(true)
		out := accepted(t)(e.Hold(t.Context(), ofRack(wire.Hold, "r1", 0)))
		assert.Contains(t, out.Unsaved, "4 of 4 Nodes are held by this daemon alone")
		assert.False(t, slices.ContainsFunc(out.Nodes, func(n wire.GroupNode) bool { return !n.Held || n.Note != "not saved yet" }))
		refusedByHand(t, e, reason.Hold)
		require.Zero(t, saved())
		store.set(false)
		time.Sleep(3 * time.Second)
		require.Equal(t, 4, saved())

		store.set(true)
		_, err := e.ReleaseHold(t.Context(), ofRack(wire.Release, "r1", 0))
		require.ErrorContains(t, err, "0 of 4 are, and these stay held: n-1 other-0 other-1 other-2")
		require.Len(t, e.Holds("c"), 4)
		store.set(false)
		accepted(t)(e.ReleaseHold(t.Context(), ofRack(wire.Release, "r1", 0)))
		assert.Empty(t, e.Holds("c"))
	})
}
