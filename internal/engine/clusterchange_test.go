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
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// countingKube counts the announcements to a cluster.
type countingKube struct {
	engine.Kube
	announced *atomic.Int64
}

func (k countingKube) Announce(ctx context.Context, a lead.Announcement) (time.Duration, string, error) {
	k.announced.Add(1)
	return k.Kube.Announce(ctx, a)
}

// growing is an engine that was started with the first of its fleets. quiet is the quiet period.
type growing struct {
	*engine.Engine
	t         *testing.T
	events    *event.Stream
	stop      func()
	options   map[string]engine.ClusterOptions
	announced map[string]*atomic.Int64
}

func startGrowing(t *testing.T, store state.Store, quiet time.Duration, all ...*fleet) *growing {
	t.Helper()
	g := &growing{t: t, options: map[string]engine.ClusterOptions{}, announced: map[string]*atomic.Int64{}}
	g.Engine, g.events, g.stop = fleets(all).guard(t, store, func(o *engine.Options) {
		for _, c := range o.Clusters {
			g.announced[c.Name] = &atomic.Int64{}
			c.Kube = countingKube{c.Kube, g.announced[c.Name]}
			g.options[c.Name] = c
		}
		o.Clusters, o.Guards.QuietPeriod = []engine.ClusterOptions{g.options[all[0].name]}, quiet
	})
	return g
}

// change adds clusters, and removes others.
func (g *growing) change(added []string, removed ...string) error {
	g.t.Helper()
	var options []engine.ClusterOptions
	for _, name := range added {
		options = append(options, g.options[name])
	}
	change, err := g.ApplyConfig.Clusters(g.t.Context(), options, removed)
	if err == nil {
		change.Apply(g.t.Context())
	}
	return err
}

// names are the clusters that the engine has.
func (g *growing) names() (list []string) {
	for _, c := range g.Status() {
		list = append(list, c.Name)
	}
	return list
}

// offs counts the Offs that the first host of a fleet was sent.
func (f *fleet) offs() int { return f.Handle(f.name + "-000").Count(bmc.CommandOff) }

// A reload adds a cluster while a run is open in another one: the run goes on, and the new cluster
// begins with the quiet period. After that its hosts are fenced as after a start. // I16, I18
func TestClusterIsAddedDuringARun(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b := newFleet("a", 5, "x"), newFleet("b", 5, "x")
		g := startGrowing(t, store, 5*time.Minute, a, b)
		time.Sleep(6 * time.Minute)
		a.fail(1)
		b.fail(1)
		time.Sleep(30 * time.Second)
		require.Len(t, g.Runs("a"), 1)
		_, err := g.SubjectOf(t.Context(), "b", "b-000")
		refusedFor(t, err, reason.NoSuchCluster)

		require.NoError(t, g.change([]string{"b"}))
		assert.Equal(t, []string{"a", "b"}, g.names())
		s := must.Do(g.SubjectOf(t.Context(), "b", "b-000"))(t)
		require.NoError(t, s.Err, "its hosts are in the index")
		time.Sleep(4*time.Minute + 50*time.Second)
		assert.Empty(t, g.Runs("b"), "the quiet period holds it")
		time.Sleep(20 * time.Minute)
		for _, f := range []*fleet{a, b} {
			require.Len(t, g.Runs(f.name), 1)
			assert.Equal(t, remediate.Done, g.Runs(f.name)[0].Step)
			assert.Equal(t, 1, f.offs())
		}
	})
}

// A cluster with an open run is not removed, and the refusal names the run. Nothing changes: in no
// cluster of that reload does anything end. When the run has ended, the cluster is removed, and
// nothing is done there any more. // I19
func TestClusterWithAnOpenRunIsNotRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b, c := newFleet("a", 5, "x"), newFleet("b", 5, "x"), newFleet("c", 5, "x")
		g := startGrowing(t, store, 0, a, b, c)
		require.NoError(t, g.change([]string{"b", "c"}))
		time.Sleep(time.Minute)
		b.fail(1)
		time.Sleep(30 * time.Second)
		require.Len(t, g.Runs("b"), 1)
		run := g.Runs("b")[0]
		require.True(t, run.Open())

		err := g.change(nil, "c", "b")
		require.ErrorContains(t, err, "cluster b cannot be removed while a run is open in it ("+run.ID+" on b-000)")
		assert.Equal(t, []string{"a", "b", "c"}, g.names())
		c.fail(1) // its door is open again
		time.Sleep(20 * time.Minute)
		for _, f := range []*fleet{b, c} {
			require.Len(t, g.Runs(f.name), 1)
			assert.Equal(t, remediate.Done, g.Runs(f.name)[0].Step)
		}

		require.NoError(t, g.change(nil, "c", "b"))
		assert.Equal(t, []string{"a"}, g.names())
		assert.Empty(t, slotsOf(t, store))
		before := g.announced["b"].Load()
		require.NotZero(t, before)
		b.fail(2)
		a.fail(1)
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 1, b.offs(), "nobody acts there any more")
		assert.Equal(t, before, g.announced["b"].Load(), "nor renews the Lease")
		assert.Equal(t, 1, a.offs(), "the other cluster is guarded as before")
		refused(t, reason.NoSuchCluster)(g.Fence(t.Context(), wire.Order{Cluster: "b", Node: "b-001", Actor: "ada"}))
		assert.Equal(t, remediate.Done, must.Do(state.GetRun(t.Context(), store, run.ID))(t).Step, "the store keeps what happened")
	})
}

// A cluster that comes back knows its runs from the store, and begins with the quiet period, although
// the store has its scope. A pause from the time between binds it. // I16, I18, I23
func TestClusterComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b := newFleet("a", 5, "x"), newFleet("b", 5, "x")
		g := startGrowing(t, store, 5*time.Minute, a, b)
		require.NoError(t, g.change([]string{"b"}))
		time.Sleep(10 * time.Minute)
		b.fail(1)
		time.Sleep(20 * time.Minute)
		require.Len(t, g.Runs("b"), 1)
		require.NoError(t, g.change(nil, "b"))
		require.Empty(t, g.Runs("b"))
		accepted(t)(g.Pause(t.Context(), wire.Order{Actor: "ada", Reason: "work", For: wire.Span(8 * time.Minute)}))
		b.Handle("b-001").Hang()
		time.Sleep(3 * time.Minute)

		require.NoError(t, g.change([]string{"b"}))
		require.Len(t, g.Runs("b"), 1, "its history is back")
		told := eventsOf(t, g.events, func(ev event.Event) bool {
			return ev.Cluster == "b" && ev.Type == event.Internal && ev.Reason == reason.QuietPeriod
		})
		require.Len(t, told, 1)
		assert.Contains(t, told[0].Message, "the cluster was added by a reload")
		time.Sleep(4*time.Minute + 30*time.Second)
		assert.NotEmpty(t, g.Status()[1].Paused)
		assert.Len(t, g.Runs("b"), 1)
		time.Sleep(20 * time.Minute)
		assert.Len(t, g.Runs("b"), 2)
	})
}

// While the quiet period of a cluster that came back holds, it starts nothing, without any pause.
// I16
func TestClusterThatComesBackIsQuiet(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b := newFleet("a", 5, "x"), newFleet("b", 5, "x")
		g := startGrowing(t, store, 5*time.Minute, a, b)
		require.NoError(t, g.change([]string{"b"}))
		time.Sleep(10 * time.Minute) // its scope is stored
		require.NoError(t, g.change(nil, "b"))
		b.fail(1)
		time.Sleep(time.Minute)
		require.NoError(t, g.change([]string{"b"}))
		time.Sleep(4*time.Minute + 50*time.Second)
		assert.Empty(t, g.Runs("b"))
		time.Sleep(time.Minute)
		assert.Len(t, g.Runs("b"), 1)
	})
}

// One change may replace every cluster.
func TestEveryClusterIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b := newFleet("a", 5, "x"), newFleet("b", 5, "x")
		g := startGrowing(t, store, 0, a, b)
		time.Sleep(time.Minute)
		require.NoError(t, g.change([]string{"b"}, "a"))
		assert.Equal(t, []string{"b"}, g.names())
		ofA := eventsOf(t, g.events, func(ev event.Event) bool { return ev.Cluster == "a" })
		last := ofA[len(ofA)-1]
		assert.Equal(t, []string{event.ModeChanged, event.NoMode}, []string{last.Type, last.Inputs}, "whoever reads the log learns that nothing lasts there")
		a.fail(1)
		b.fail(1)
		time.Sleep(20 * time.Minute)
		assert.Zero(t, a.offs())
		assert.Equal(t, 1, b.offs())
		_, err := g.Explain(t.Context(), "", "b-000")
		require.NoError(t, err, "it is the only cluster")
	})
}

// A host of two clusters, which is not fenced, can be again when one of them is removed: its hosts
// leave the index. // I9
func TestHostsOfARemovedClusterAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b := newFleet("a", 5, "x"), newFleet("b", 5, "x")
		b.changeEntryOf("b-000", "a-000.test")
		g := startGrowing(t, store, 0, a, b)
		require.NoError(t, g.change([]string{"b"}))
		a.fail(1)
		time.Sleep(5 * time.Minute)
		require.Empty(t, g.Runs("a"))
		require.Contains(t, refusals(t, g.events), string(reason.DuplicateHost))
		require.NoError(t, g.change(nil, "b"))
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 1, a.offs())
	})
}

// changeEntryOf gives the entry of a host another address.
func (f *fleet) changeEntryOf(node, address string) {
	f.Handle(node).ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].Endpoint.Host = address })
}

// In mode observe a cluster is added without acting: the mode is that of its configuration.
func TestAddedClusterHasItsMode(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b := newFleet("a", 5, "x"), newFleet("b", 5, "x")
		g := startGrowing(t, store, 0, a, b)
		o := g.options["b"]
		o.Mode = guard.ModeObserve
		g.options["b"] = o
		require.NoError(t, g.change([]string{"b"}))
		b.fail(1)
		time.Sleep(20 * time.Minute)
		assert.Zero(t, b.offs())
		assert.False(t, g.Status()[1].Armed)
	})
}

// A standby does not drop a cluster whose owner has an open run, even if it has not heard of the run
// yet: nobody else might continue it. // I19
func TestStandbyKeepsAClusterWithAnOpenRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		p.store["b"].deaf.Store(true)
		p.give("a")
		time.Sleep(untilOff)
		require.True(t, only(t, p.engine["a"]).Open())
		require.Empty(t, p.engine["b"].Runs("c"))
		_, err := p.engine["b"].ApplyConfig.Clusters(t.Context(), nil, []string{"c"})
		require.ErrorContains(t, err, "while a run is open in it")
		time.Sleep(20 * time.Minute)
		require.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		change := must.Do(p.engine["b"].ApplyConfig.Clusters(t.Context(), nil, []string{"c"}))(t)
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
		p.give("a")
		time.Sleep(time.Minute)
		change := must.Do(p.engine["a"].ApplyConfig.Clusters(t.Context(), nil, []string{"c"}))(t)
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
		require.NoError(t, g.change([]string{"b"}))
		time.Sleep(time.Minute)
		change := must.Do(g.ApplyConfig.Clusters(t.Context(), nil, []string{"b"}))(t)
		b.fail(1)
		time.Sleep(5 * time.Minute)
		why := refused(t, reason.NotOwner)(g.Fence(t.Context(), wire.Order{Cluster: "b", Node: "b-001", Actor: "ada", Reason: "r"}))
		require.Contains(t, why, "is being removed")
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
		e := running(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			o.Clusters[0].Requests = stuckRequests{w.Requests(), &stuck}
		})
		ask(w, nil)
		time.Sleep(20 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
		_, err := e.ApplyConfig.Clusters(t.Context(), nil, []string{"c"})
		require.ErrorContains(t, err, "cluster c cannot be removed yet: fenced's finalizer is still on the FencedRemediation ns/m-1")
		stuck.Store(false)
		time.Sleep(10 * time.Minute)
		change := must.Do(e.ApplyConfig.Clusters(t.Context(), nil, []string{"c"}))(t)
		change.Apply(t.Context())
		assert.Empty(t, e.Status())
	})
}

// While the store cannot be read, nobody knows whether a run is open: no cluster is removed, and none is added. A reload that does
// neither does not wait for the store: a wrong guard or a log level can be corrected while an etcd has no quorum. // I20
func TestClusterIsNotRemovedWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		a, b, c := newFleet("a", 5, "x"), newFleet("b", 5, "x"), newFleet("c", 5, "x")
		unread := &unreadStore{failingStore: store}
		g := startGrowing(t, unread, 0, a, b, c)
		require.NoError(t, g.change([]string{"b"}))
		time.Sleep(time.Minute)
		unread.down.Store(true)
		require.NoError(t, g.change(nil))
		require.ErrorContains(t, g.change([]string{"c"}), "load runs")
		require.ErrorContains(t, g.change(nil, "b"), "load runs")
		assert.Equal(t, []string{"a", "b"}, g.names())
		unread.down.Store(false)
		b.fail(1)
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 1, b.offs(), "it is guarded as before")
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
		require.NoError(t, g.change([]string{"b"}))
		time.Sleep(time.Minute)
		b.fail(1)
		await(t, func() bool { return len(slotsOf(t, store)) > 0 })
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
		change := must.Do(p.engine["b"].ApplyConfig.Clusters(t.Context(), nil, []string{"c"}))(t)
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
