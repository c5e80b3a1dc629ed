package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

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
