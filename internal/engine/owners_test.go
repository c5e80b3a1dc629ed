package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

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

// Owner implements state.Owners.
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
