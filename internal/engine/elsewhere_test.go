package engine_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// astray is a world whose n-1 never registers again, and which may show Nodes of
// other names with the UUID of its host.
type astray struct {
	*world
	shown map[string]*policy.Node // guarded by the world's mutex
}

func (r astray) Changes() []policy.Change {
	list := r.world.Changes()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.shown)) {
		list = append(list, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: r.shown[name]})
	}
	return list
}

func (r astray) show(name, boot, ready string, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown[name] = &policy.Node{Name: name, UID: "uid-" + name, BootID: boot, SystemUUID: hostUUID,
		Conditions: []policy.Condition{{Type: "Ready", Status: ready, LastTransition: since}}}
}

// isolate starts an engine and waits until n-1 was isolated.
func (r astray) isolate(t *testing.T, store *failingStore) (*engine.Engine, func()) {
	t.Helper()
	r.onLook = func(int) { r.offAt = time.Time{} } // no boot ends in a registration
	e, _, stop := start(t, r.world, store, r.watch)
	time.Sleep(2 * time.Minute)
	require.Equal(t, remediate.AwaitNode, only(t, e).Step)
	require.Equal(t, 1, r.deleted())
	return e, stop
}

func (r astray) watch(o *engine.Options) { o.Clusters[0].Watch = r }

// A host that works under another name is not cycled again, whatever happens to the
// daemon meanwhile.
func TestHostThatComesBackUnderAnotherName(t *testing.T) { // I6
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		r := astray{w, map[string]*policy.Node{}}
		_, stop := r.isolate(t, store)
		r.show("n-new", "boot-2", "True", time.Now())
		stop()
		w.mu.Lock()
		w.unsynced = true // the next daemon has not seen the cluster yet
		w.mu.Unlock()
		e, _, stop := start(t, w, store, r.watch)
		time.Sleep(30 * time.Minute)
		require.Equal(t, remediate.AwaitNode, only(t, e).Step, "nobody can say whether the host works elsewhere")
		w.mu.Lock()
		w.unsynced = false
		w.mu.Unlock()
		time.Sleep(30 * time.Minute)
		run := only(t, e)
		assert.Equal(t, remediate.Held, run.Step)
		assert.Equal(t, "NodeRenamed", run.Reason)
		assert.Contains(t, run.Note, "n-new")
		assert.Equal(t, 1, w.count(bmc.CommandOff), "it works: it is not switched off again")
		stop()
	})
}

// A Node that was left behind by a renaming long ago says nothing of where the host
// is now: it is cycled again.
func TestNodeOfAFormerNameIsNoReturn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		r := astray{w, map[string]*policy.Node{}}
		e, stop := r.isolate(t, store)
		r.show("n-old", "boot-0", "Unknown", time.Now().Add(-time.Hour))
		time.Sleep(15 * time.Minute)
		assert.Equal(t, 2, w.count(bmc.CommandOff))
		assert.Equal(t, 2, only(t, e).Attempt)
		r.show("n-old", "boot-3", "Unknown", time.Now()) // it has been heard of, and is silent again
		time.Sleep(15 * time.Minute)
		assert.Equal(t, "NodeRenamed", only(t, e).Reason)
		assert.Equal(t, 2, w.count(bmc.CommandOff))
		stop()
	})
}

// A boot that was there before the run, which the control plane gave up only during
// it, is not a return.
func TestBootFromBeforeTheRunIsNoReturn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		r := astray{w, map[string]*policy.Node{}}
		e, stop := r.isolate(t, store)
		r.show("n-old", only(t, e).Target.BootID, "Unknown", time.Now())
		time.Sleep(15 * time.Minute)
		assert.Equal(t, 2, w.count(bmc.CommandOff))
		stop()
	})
}
