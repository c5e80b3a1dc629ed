package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// Without a claim an instance evaluates and explains, and acts on nothing.
func TestStandbyExplainsAndTouchesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, w.Commands())
		assert.Zero(t, w.Reads(), "no probe is made")
		n, _ := w.Announcements()
		assert.Zero(t, n, "no Lease is taken")
		assert.Empty(t, must.Do(store.List(t.Context(), state.KindCluster))(t), "nothing is saved")
		g := gate(t, p.engine["b"], reason.NotOwner)
		assert.Contains(t, g.Value, "no instance owns")
		assert.Equal(t, "store", g.Source)
		s := p.engine["b"].Status()[0]
		assert.False(t, s.Owner)
		assert.NotEmpty(t, s.Idle)

		p.give("a")
		time.Sleep(time.Second)
		g = gate(t, p.engine["b"], reason.NotOwner)
		assert.Equal(t, "instance a owns the cluster (epoch 1)", g.Value)
		assert.Equal(t, policy.Unhealthy, must.Do(p.engine["b"].Explain(t.Context(), "c", "n-1"))(t).Verdict)
		refused(t, reason.NotOwner)(p.engine["b"].Fence(t.Context(), byHand))
		_, err := p.engine["b"].Arming.Arm(t.Context(), byHand)
		refusedFor(t, err, reason.NotOwner)
		refusedFor(t, unfreeze(t, p.engine["b"], byHand), reason.NotOwner)
		_, err = p.engine["b"].Enroll(t.Context(), byHand)
		refusedFor(t, err, reason.NotOwner)

		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		assert.Equal(t, remediate.Done, only(t, p.engine["b"]).Step, "the standby sees the runs of the owner")
		s = p.engine["b"].Status()[0]
		assert.Equal(t, "a", s.OwnerName)
		assert.Equal(t, uint64(1), s.Epoch)
		assert.Empty(t, s.Idle)
		assert.True(t, p.engine["a"].Status()[0].Owner)
	})
}

// Whenever the owner of a cluster changes, the old owner stops at a save point, and the
// new one continues there: one isolation, and the host comes back. // I20
func TestHandOverAtAnyMoment(t *testing.T) {
	for _, at := range []int{60, 61, 62, 63, 64, 66, 68, 72, 80, 88, 95} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			p := newPair(t, w, store, nil)
			p.give("a")
			time.Sleep(time.Duration(at) * time.Second)
			p.take("a")
			p.give("b")
			time.Sleep(3 * time.Minute)
			r := only(t, p.engine["b"])
			assert.Equal(t, remediate.Done, r.Step, "handed over after %ds: %s %s", at, r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations(), "handed over after %ds", at)
			assert.Equal(t, r.Version, only(t, p.engine["a"]).Version, "the old owner sees how it ended")
		})
	}
}

// An owner that gets a cluster back reads the runs again, and does not continue from
// memory.
func TestRegainedClusterIsReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		p.give("a")
		time.Sleep(64 * time.Second)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		p.take("a")
		p.store["a"].deaf.Store(true)
		p.give("b")
		time.Sleep(5 * time.Minute)
		require.Equal(t, remediate.Done, only(t, p.engine["b"]).Step)
		p.take("b")
		sent := len(w.Commands())
		p.give("a")
		time.Sleep(time.Second)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		time.Sleep(time.Minute)
		assert.Len(t, w.Commands(), sent)
	})
}

// An owner that does not know that it has lost the cluster finds out at its next save, and
// does nothing on a record that was not accepted. // I19
func TestFormerOwnerDoesNothingMore(t *testing.T) {
	for at := 60; at <= 72; at += 2 {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			p := newPair(t, w, store, nil)
			p.give("a")
			time.Sleep(time.Duration(at) * time.Second)
			p.expire("a", time.Now()) // as its own clock says
			sent, deleted := len(w.Commands()), w.Isolations()
			time.Sleep(30 * time.Second)
			require.Len(t, w.Commands(), sent, "no command after the claim ran out at %ds", at)
			require.Equal(t, deleted, w.Isolations())
			p.give("b") // the next epoch: what a still saves is refused
			time.Sleep(3 * time.Minute)
			r := only(t, p.engine["b"])
			assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations())
			p.take("a")
		})
	}
}

// slowPower is a BMC that takes its time for a command, until it is given up.
type slowPower struct {
	bmc.Power
	took  chan<- time.Duration
	delay time.Duration
}

func (s slowPower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	begun := time.Now()
	defer func() { s.took <- time.Since(begun) }()
	select {
	case <-ctx.Done():
		return bmc.Receipt{}, &bmc.Error{Kind: bmc.KindUnreachable, Op: "send", Err: ctx.Err()}
	case <-time.After(s.delay):
		return s.Power.Send(ctx, c)
	}
}

// A command that is running when the claim ends is cancelled before that end. // I19
func TestCommandEndsWithTheClaim(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		took := make(chan time.Duration, 10)
		p := newPair(t, w, store, func(_ string, o *engine.Options) {
			o.Open = func(bmc.Device) (bmc.Power, error) { return slowPower{w.bmc(), took, time.Hour}, nil }
		})
		p.give("a")
		p.expire("a", time.Now().Add(64*time.Second))
		time.Sleep(2 * time.Minute)
		require.Len(t, took, 1, "none was begun with less than the margin left")
		assert.LessOrEqual(t, <-took, 4*time.Second, "at 60 s a command was begun, and cut at 64 s")
	})
}

// People can stop the owner at any instance. // I23
func TestPauseAtAStandbyStopsTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		p.give("a")
		time.Sleep(30 * time.Second)
		accepted(t)(p.engine["b"].Pause(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "wait"}))
		time.Sleep(time.Second)
		assert.Contains(t, p.engine["a"].Status()[0].Paused, "ada")
		accepted(t)(p.engine["b"].Hold(t.Context(), byHand))
		time.Sleep(5 * time.Minute)
		assert.Empty(t, w.Commands())
		accepted(t)(p.engine["a"].Resume(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "go"}))
		time.Sleep(time.Minute)
		assert.Empty(t, w.Commands())
		gate(t, p.engine["a"], reason.Hold)
		accepted(t)(p.engine["b"].ReleaseHold(t.Context(), byHand))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
	})
}

// The daemon starts beside the record of an ended run that it cannot read, and says so once. The record stays. // I20
func TestEndedRunThatCannotBeReadKeepsNobodyDown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const bad = `{"v":1,"data":{"id":"r-0","step":"Done","ended":"2026-01-01T00:00:00Z","of":"another version"}}`
		must.Do(store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r-0", Data: []byte(bad)}))(t)
		e, events, _ := start(t, w, store, nil)
		time.Sleep(2 * time.Hour) // and it is pruned around
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, heard(t, events, `"r-0"`))
		assert.Equal(t, bad, string(must.Do(store.Get(t.Context(), state.KindRun, "r-0"))(t).Data))
	})
}

// An instance does not take over a cluster with unreadable records: one may be of an open
// run. // I20
func TestUnreadableRecordsAreNotTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		must.Do(store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r-1", Data: []byte("{")}))(t)
		p.give("a")
		time.Sleep(5 * time.Minute)
		assert.Empty(t, w.Commands())
		s := p.engine["a"].Status()[0]
		assert.False(t, s.Owner)
		assert.NotEmpty(t, s.Idle, "and people see that nobody acts")
		require.Len(t, p.told(t, "a", event.Failed), 1)
		assert.Contains(t, p.told(t, "a", event.Failed)[0], "r-1")
		r := must.Do(store.Get(t.Context(), state.KindRun, "r-1"))(t)
		require.NoError(t, store.Delete(t.Context(), state.KindRun, "r-1", r.Version))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
	})
}

// deed says who owns the cluster "c" among instances that share a store. Tests give
// it and take it.
type deed struct {
	mu     sync.Mutex
	epoch  uint64
	holder *heir
	heirs  map[string]*heir
}

// heir is one instance's state.Owners.
type heir struct {
	deed    *deed
	name    string
	store   state.Store
	given   chan state.Claim
	lost    context.CancelFunc
	done    chan struct{} // closed when guard has returned
	expires time.Time     // zero: far away
	aside   bool          // it leaves the cluster to the others
}

func newDeed() *deed { return &deed{heirs: map[string]*heir{}} }

func (d *deed) heir(name string, store state.Store) *heir {
	h := &heir{deed: d, name: name, store: store, given: make(chan state.Claim, 1)}
	d.heirs[name] = h
	return h
}

// Run implements state.Owners.
func (h *heir) Run(ctx context.Context, guard func(context.Context, state.Claim)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case claim := <-h.given:
			ctx, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			h.deed.mu.Lock()
			h.lost, h.done = cancel, done
			h.deed.mu.Unlock()
			guard(ctx, claim)
			cancel()
			close(done)
		}
	}
}

func (h *heir) Owner(string) state.Owner {
	h.deed.mu.Lock()
	defer h.deed.mu.Unlock()
	if h.deed.holder == nil {
		return state.Owner{}
	}
	o := state.Owner{Instance: h.deed.holder.name, Epoch: h.deed.epoch}
	if next := h.deed.next(); next != nil {
		o.Standby = next.name
	}
	return o
}

// next is the heir that stands by, nil if there is none. d.mu is held.
func (d *deed) next() *heir {
	for _, h := range d.heirs {
		if h != d.holder && !h.aside {
			return h
		}
	}
	return nil
}

// Add implements state.Owners: the test says who owns the cluster.
func (h *heir) Add(string) {}

// Remove implements state.Owners.
func (h *heir) Remove(string) {
	h.deed.mu.Lock()
	holds := h.deed.holder == h
	h.deed.mu.Unlock()
	if holds {
		h.deed.take(h.name)
	}
}

// StepAside implements state.Owners.
func (h *heir) StepAside(_ string, aside bool) bool {
	h.deed.mu.Lock()
	defer h.deed.mu.Unlock()
	h.aside = aside
	if next := h.deed.next(); aside && h.deed.holder == h && next != nil {
		go func() { h.deed.take(h.name); h.deed.give(next.name) }()
	}
	return true
}

func (d *deed) isAside(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heirs[name].aside
}

func (d *deed) setAside(name string, aside bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heirs[name].aside = aside
}

// latest is the newest epoch.
func (d *deed) latest() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.epoch
}

// give makes an instance the owner, in a new epoch: the one before may still think
// that it is.
func (d *deed) give(name string) {
	d.mu.Lock()
	h := d.heirs[name]
	d.epoch++
	d.holder, h.expires = h, time.Time{}
	claim := state.Claim{Cluster: "c", Epoch: d.epoch, Until: h.until}
	claim.Store = underEpoch{h.store, d, d.epoch}
	d.mu.Unlock()
	h.given <- claim
}

// take ends an instance's claim and waits until it has stopped.
func (d *deed) take(name string) {
	d.mu.Lock()
	h := d.heirs[name]
	lost, done := h.lost, h.done
	d.holder = nil
	d.mu.Unlock()
	lost()
	<-done
}

// expire lets an instance's claim run out, without anybody telling it to stop.
func (d *deed) expire(name string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heirs[name].expires = at
}

func (h *heir) until() time.Time {
	h.deed.mu.Lock()
	defer h.deed.mu.Unlock()
	if h.expires.IsZero() {
		return time.Now().Add(12 * time.Second) // it is renewed
	}
	return h.expires
}

// underEpoch is a claim's store.
type underEpoch struct {
	state.Store
	deed  *deed
	epoch uint64
}

func (s underEpoch) current() bool {
	s.deed.mu.Lock()
	defer s.deed.mu.Unlock()
	return s.deed.epoch == s.epoch
}

func (s underEpoch) Put(ctx context.Context, r state.Record) (uint64, error) {
	if !s.current() {
		return 0, state.ErrNotOwner
	}
	return s.Store.Put(ctx, r)
}

func (s underEpoch) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	if !s.current() {
		return state.ErrNotOwner
	}
	return s.Store.Delete(ctx, kind, key, version)
}

// branch is one instance's way to the store that all share: it signals what others
// write, and can be cut.
type branch struct {
	*failingStore
	signal chan struct{}
	deaf   atomic.Bool // it hears of nothing that others write
	others *[]*branch
}

func (b *branch) Watch(context.Context) <-chan struct{} { return b.signal }

func (b *branch) Put(ctx context.Context, r state.Record) (uint64, error) {
	v, err := b.failingStore.Put(ctx, r)
	for _, o := range *b.others {
		if o == b || err != nil || o.deaf.Load() {
			continue
		}
		select {
		case o.signal <- struct{}{}:
		default:
		}
	}
	return v, err
}

// pair is two instances with one store and one world.
type pair struct {
	*deed
	world  *world
	engine map[string]*engine.Engine
	events map[string]*event.Stream
	store  map[string]*branch
	stop   map[string]func()
}

// newPair starts instances a and b; nobody owns the cluster yet.
func newPair(t *testing.T, w *world, store *failingStore, change func(string, *engine.Options)) *pair {
	t.Helper()
	p := &pair{deed: newDeed(), world: w, engine: map[string]*engine.Engine{}, events: map[string]*event.Stream{},
		store: map[string]*branch{}, stop: map[string]func(){}}
	others := new([]*branch)
	for _, name := range []string{"a", "b"} {
		b := &branch{failingStore: &failingStore{Store: store.Store}, signal: make(chan struct{}, 1), others: others}
		*others = append(*others, b)
		owners := p.heir(name, b)
		p.store[name] = b
		p.engine[name], p.events[name], p.stop[name] = start(t, w, b, func(o *engine.Options) {
			o.Owners, o.Instance, o.StoreID = owners, name, "shared"
			if change != nil {
				change(name, o)
			}
		})
	}
	return p
}

func (p *pair) end() {
	p.stop["a"]()
	p.stop["b"]()
}

// told are the messages of one instance's events of a type.
func (p *pair) told(t *testing.T, name, kind string) (messages []string) {
	t.Helper()
	for _, ev := range eventsOf(t, p.events[name], func(ev event.Event) bool { return ev.Type == kind }) {
		messages = append(messages, ev.Message)
	}
	return messages
}
