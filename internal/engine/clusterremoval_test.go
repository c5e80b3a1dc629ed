package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// A standby does not drop a cluster whose owner has an open run, even if it has not heard of the run
// yet: nobody else might continue it. // I19
func TestStandbyKeepsAClusterWithAnOpenRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		defer p.end()
		p.store["b"].deaf.Store(true)
		p.give("a")
		time.Sleep(untilOff)
		require.True(t, only(t, p.engine["a"]).Open())
		require.Empty(t, p.engine["b"].Runs("c"))
		_, err := p.engine["b"].ApplyConfig.Clusters(t.Context(), nil, []string{"c"})
		require.ErrorContains(t, err, "while a run is open in it")
		time.Sleep(20 * time.Minute)
		require.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		change, err := p.engine["b"].ApplyConfig.Clusters(t.Context(), nil, []string{"c"})
		require.NoError(t, err)
		change.Apply(t.Context())
		assert.Empty(t, p.engine["b"].Status())
	})
}

// The owner of a cluster is reloaded without it, and hands it over in order to the instance that
// still has it. // I19
func TestRemovedClusterIsHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		p := newPair(t, w, store, nil)
		defer p.end()
		p.give("a")
		time.Sleep(time.Minute)
		change, err := p.engine["a"].ApplyConfig.Clusters(t.Context(), nil, []string{"c"})
		require.NoError(t, err)
		change.Apply(t.Context())
		assert.Contains(t, p.told(t, "a", event.OwnerChanged), "releases ownership of the cluster in epoch 1")
		p.give("b")
		w.Hang()
		time.Sleep(20 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["b"]).Step)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		assert.Empty(t, p.engine["a"].Runs("c"))
	})
}

// Between the check and the end of a cluster no run begins there, not even by order.
func TestNoRunBeginsInAClusterThatIsBeingRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b := newFleet("a", 5, "x"), newFleet("b", 5, "x")
		g := startGrowing(t, store, 0, a, b)
		defer g.stop()
		require.NoError(t, g.change([]string{"b"}))
		time.Sleep(time.Minute)
		change, err := g.ApplyConfig.Clusters(t.Context(), nil, []string{"b"})
		require.NoError(t, err)
		b.fail(1)
		time.Sleep(5 * time.Minute)
		_, err = g.Fence(t.Context(), wire.Order{Cluster: "b", Node: "b-001", Actor: "ada", Reason: "r"})
		refusedFor(t, err, reason.NotOwner)
		require.ErrorContains(t, err, "is being removed")
		assert.Empty(t, g.Runs("b"))
		change.Apply(t.Context())
		assert.Zero(t, b.offs())
	})
}

// stuckRequests cannot take the finalizer off a request while they are stuck.
type stuckRequests struct {
	fake.Requests
	stuck *atomic.Bool
}

func (r stuckRequests) RemoveFinalizer(ctx context.Context, ref remediate.Request, heldBy string) error {
	if r.stuck.Load() {
		return fake.ErrAPI
	}
	return r.Requests.RemoveFinalizer(ctx, ref, heldBy)
}

// A finalizer that fenced has set would stay for ever if nobody watched the cluster any more: the
// clusterParts is removed when it is off.
func TestClusterWithAFinalizerIsNotRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var stuck atomic.Bool
		stuck.Store(true)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			o.Clusters[0].Requests = stuckRequests{w.Requests(), &stuck}
		})
		defer stop()
		ask(w, nil)
		time.Sleep(20 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
		_, err := e.ApplyConfig.Clusters(t.Context(), nil, []string{"c"})
		require.ErrorContains(t, err, "cluster c cannot be removed yet: fenced's finalizer is still on the FencedRemediation ns/m-1")
		stuck.Store(false)
		time.Sleep(10 * time.Minute)
		change, err := e.ApplyConfig.Clusters(t.Context(), nil, []string{"c"})
		require.NoError(t, err)
		change.Apply(t.Context())
		assert.Empty(t, e.Status())
	})
}

// While the store cannot be read, nobody knows whether a run is open: nothing is removed. // I20
func TestClusterIsNotRemovedWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b := newFleet("a", 5, "x"), newFleet("b", 5, "x")
		unread := &unreadStore{failingStore: store}
		g := startGrowing(t, unread, 0, a, b)
		defer g.stop()
		require.NoError(t, g.change([]string{"b"}))
		time.Sleep(time.Minute)
		unread.down.Store(true)
		require.ErrorContains(t, g.change(nil, "b"), "load runs")
		unread.down.Store(false)
		b.fail(1)
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 1, b.offs(), "it is guarded as before")
	})
}

// A reload that adds and removes no cluster does not wait for the store: a wrong guard or a log level can
// be corrected while an etcd has no quorum.
func TestReloadWithoutAChangeOfClustersNeedsNoStore(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		unread := &unreadStore{failingStore: store}
		g := startGrowing(t, unread, 0, newFleet("a", 5, "x"), newFleet("b", 5, "x"))
		defer g.stop()
		unread.down.Store(true)
		require.NoError(t, g.change(nil))
		require.ErrorContains(t, g.change([]string{"b"}), "load runs")
		assert.Equal(t, []string{"a"}, g.names())
	})
}

// unreadStore is a store that reads no runs while it is down.
type unreadStore struct {
	*failingStore
	down atomic.Bool
}

func (s *unreadStore) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if kind == state.KindRun && s.down.Load() {
		return nil, context.DeadlineExceeded
	}
	return s.failingStore.List(ctx, kind)
}

// slotStore frees no slot while it is stuck.
type slotStore struct {
	*failingStore
	stuck atomic.Bool
}

func (s *slotStore) stuckWith(kind state.Kind) bool { return kind == state.KindSlot && s.stuck.Load() }

func (s *slotStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	if s.stuckWith(r.Kind) {
		return 0, context.DeadlineExceeded
	}
	return s.failingStore.Put(ctx, r)
}

func (s *slotStore) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	if s.stuckWith(kind) {
		return context.DeadlineExceeded
	}
	return s.failingStore.Delete(ctx, kind, key, version)
}

// A slot that stays behind would count against guards.maxInFlightTotal for ever: a cluster is removed
// only when its runs have given theirs back. // I11
func TestClusterWithASlotIsNotRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b := newFleet("a", 5, "x"), newFleet("b", 5, "x")
		slots := &slotStore{failingStore: store}
		g := startGrowing(t, slots, 0, a, b)
		defer g.stop()
		require.NoError(t, g.change([]string{"b"}))
		time.Sleep(time.Minute)
		b.fail(1)
		for len(slotsOf(t, store)) == 0 {
			time.Sleep(time.Second)
		}
		slots.stuck.Store(true)
		time.Sleep(20 * time.Minute)
		require.Equal(t, remediate.Done, g.Runs("b")[0].Step)
		require.ErrorContains(t, g.change(nil, "b"), "cluster b cannot be removed: free the slots of its ended runs")
		slots.stuck.Store(false)
		require.NoError(t, g.change(nil, "b"))
		assert.Empty(t, slotsOf(t, store))
	})
}

// An instance that drops a cluster does not begin to lead it between the check and the end: it might
// have to continue a run that another one began meanwhile. // I19
func TestNoLeadershipBeginsInAClusterThatIsBeingRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		defer p.end()
		change, err := p.engine["b"].ApplyConfig.Clusters(t.Context(), nil, []string{"c"})
		require.NoError(t, err)
		p.give("b")
		time.Sleep(5 * time.Minute)
		assert.False(t, p.engine["b"].Status()[0].Owner)
		assert.Zero(t, w.Count(bmc.CommandOff))
		change.Apply(t.Context())
		p.give("a")
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
	})
}
