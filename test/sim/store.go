package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/state"
)

var errStore = errors.New("the store does not answer")

// storeClient is one fenced's access to the store. It fails before a write, or
// after it, so that the result is not known. With a claim it compares the epoch
// at each write. // I19
type storeClient struct {
	inc   *incarnation
	epoch uint64 // 0 = without a claim
}

// isAsked says whether a record is about what another remediator was asked.
func isAsked(r state.Record) bool {
	return r.Kind == state.KindMeta && strings.HasPrefix(r.Key, askedPrefix)
}

// pass delivers one operation to the store.
func (d *storeClient) pass(ctx context.Context, what string, write bool) error {
	if err := d.inc.call(ctx, what); err != nil {
		return err
	}
	w := d.inc.i.w
	var cut, fails bool
	w.do(func() {
		cut = time.Now().Before(d.inc.i.storeCut)
		if fails = write && w.dice.Float64() < w.storeFails(); fails {
			w.fault("store-write-refused", "", "%s of %s", what, d.inc)
		}
	})
	if cut {
		_ = sleep(ctx, 2*time.Second)
		return errStore
	}
	if fails {
		return errStore
	}
	return sleep(ctx, time.Millisecond)
}

// back delivers the result of a write, or loses it.
func (d *storeClient) back(ctx context.Context, what string) error {
	w := d.inc.i.w
	var lost bool
	w.do(func() {
		if lost = w.dice.Float64() < w.storeFails(); lost {
			w.fault("store-answer-lost", "", "%s of %s", what, d.inc)
		}
	})
	if lost {
		return errStore
	}
	return d.inc.call(ctx, what+" answered")
}

// skew is by how much the times of others are ahead for this fenced.
func (d *storeClient) skew() (skew time.Duration) {
	d.inc.i.w.do(func() { skew = d.inc.i.clock.ours })
	return skew
}

// skewOf is by how much the times of a record are ahead for this fenced. Its clock may have
// followed since it wrote the record itself; that changes nothing about these times.
func (d *storeClient) skewOf(r state.Record) (skew time.Duration) {
	d.inc.i.w.do(func() {
		skew = d.inc.i.clock.ours
		if own, wrote := d.inc.stamps[stampKey(r)]; wrote && own.version == r.Version {
			skew = own.skew
		}
	})
	return skew
}

func (d *storeClient) Get(ctx context.Context, kind state.Kind, key string) (state.Record, error) {
	if err := d.pass(ctx, "get", false); err != nil {
		return state.Record{}, err
	}
	r, err := d.inc.i.w.store.Get(ctx, kind, key)
	return d.inc.i.w.defect.stored(shiftRecord(r, d.skewOf(r))), err
}

func (d *storeClient) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if err := d.pass(ctx, "list", false); err != nil {
		return nil, err
	}
	if kind == state.KindRun && d.inc.i.w.defect.ForgetsRuns {
		return nil, nil
	}
	list, err := correctedStore{d.inc.i.w.store, d.skew()}.List(ctx, kind)
	if d.inc.i.w.defect.ForgetsAsked {
		list = slices.DeleteFunc(list, isAsked)
	}
	for i := range list {
		list[i] = d.inc.i.w.defect.stored(list[i])
	}
	return list, err
}

func (d *storeClient) Put(ctx context.Context, r state.Record) (uint64, error) {
	w := d.inc.i.w
	what := "put " + string(r.Kind)
	if err := d.pass(ctx, what, true); err != nil {
		return 0, err
	}
	w.do(func() { w.search("the record "+string(r.Kind)+" "+r.Key, "", string(r.Data)) })
	if r.Kind == state.KindRun && r.Version != 0 && w.defect.StoresNoRuns {
		return r.Version, nil
	}
	if isAsked(r) && w.defect.StoresNoAsked {
		return r.Version + 1, nil
	}
	var version uint64
	skew := d.skew()
	r = shiftRecord(r, -skew)
	err := error(state.ErrNotOwner)
	w.do(func() { // compares the epoch in the same transaction
		if w.owners.holds(d) {
			version, err = w.store.put(ctx, r, w.defect.IgnoresVersions)
		}
	})
	if err != nil {
		return 0, err
	}
	w.do(func() {
		d.inc.stamps[stampKey(r)] = stamp{version, skew}
		w.tellOthers(d.inc)
	})
	if r.Kind == state.KindBackup && w.defect.LosesBackups {
		w.after(time.Second, func() { _ = w.store.Delete(w.ctx, r.Kind, r.Key, version) })
	}
	w.stored(d, r.Kind, r.Key, skew)
	return version, d.back(ctx, what)
}

func (d *storeClient) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	what := "delete " + string(kind)
	if err := d.pass(ctx, what, true); err != nil {
		return err
	}
	w := d.inc.i.w
	err := error(state.ErrNotOwner)
	w.do(func() {
		if w.owners.holds(d) {
			err = w.store.Delete(ctx, kind, key, version)
		}
	})
	if err != nil {
		return err
	}
	w.do(func() { w.tellOthers(d.inc) })
	w.dropped(d, kind, key)
	return d.back(ctx, what)
}

// Watch implements state.Store.
func (d *storeClient) Watch(context.Context) <-chan struct{} {
	if d.inc.i.w.plan.Instances == 1 { // it has locked the store
		return nil
	}
	return d.inc.news
}

// tellOthers signals the other users of the store. An instance that is cut off
// gets the signal later. w.mu is held.
func (w *World) tellOthers(by *incarnation) {
	for _, i := range w.instances {
		if i.cur == nil || i.cur == by {
			continue
		}
		if i.missed = time.Now().Before(i.storeCut); i.missed {
			continue
		}
		i.cur.wake()
	}
}

// wake signals that the store may have changed.
func (c *incarnation) wake() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// Close implements state.Store.
func (d *storeClient) Close() error { return nil }

// memory is the durable content of the store.
type memory struct {
	mu      sync.Mutex
	version uint64
	records map[string]state.Record
}

func newMemory() *memory { return &memory{records: map[string]state.Record{}} }

func recordKey(k state.Kind, key string) string { return string(k) + "\x00" + key }

// Get implements state.Store.
func (m *memory) Get(ctx context.Context, kind state.Kind, key string) (state.Record, error) {
	if err := ctx.Err(); err != nil {
		return state.Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[recordKey(kind, key)]
	if !ok {
		return r, fmt.Errorf("get %s %q: %w", kind, key, state.ErrNotFound)
	}
	r.Data = slices.Clone(r.Data)
	return r, nil
}

// Put implements state.Store.
func (m *memory) Put(ctx context.Context, r state.Record) (uint64, error) {
	return m.put(ctx, r, false)
}

func (m *memory) put(ctx context.Context, r state.Record, blind bool) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, exists := m.records[recordKey(r.Kind, r.Key)]
	switch {
	case blind:
	case r.Version == 0 && exists:
		return 0, fmt.Errorf("put %s %q: %w", r.Kind, r.Key, state.ErrExists)
	case r.Version != old.Version:
		return 0, fmt.Errorf("put %s %q: %w", r.Kind, r.Key, state.ErrConflict)
	}
	m.version++
	r.Version, r.Data = m.version, slices.Clone(r.Data)
	m.records[recordKey(r.Kind, r.Key)] = r
	return m.version, nil
}

// Delete implements state.Store.
func (m *memory) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, ok := m.records[recordKey(kind, key)]
	switch {
	case !ok:
		return fmt.Errorf("delete %s %q: %w", kind, key, state.ErrNotFound)
	case old.Version != version:
		return fmt.Errorf("delete %s %q: %w", kind, key, state.ErrConflict)
	}
	delete(m.records, recordKey(kind, key))
	return nil
}

// List implements state.Store.
func (m *memory) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []state.Record
	for _, r := range m.records {
		if r.Kind == kind {
			r.Data = slices.Clone(r.Data)
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b state.Record) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}

// Watch implements state.Store; a fenced watches with its own storeClient.
func (m *memory) Watch(context.Context) <-chan struct{} { return nil }

// Close implements state.Store.
func (m *memory) Close() error { return nil }

// copy is a backup, replace puts one back. The versions of what is written later are new.
func (m *memory) copy() map[string]state.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.records)
}

func (m *memory) replace(records map[string]state.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = maps.Clone(records)
}

// Times of a session.
const (
	sessionTTL = 15 * time.Second
	renewOwner = 5 * time.Second
)

// ownership is what the store knows about the owner of the cluster. Guarded by
// the world's mutex.
type ownership struct {
	w       *World
	holder  *incarnation
	epoch   uint64
	expires time.Time
	since   time.Time // of the epoch
	freed   time.Time // when it was released last
}

// valid reports whether the store considers the incarnation the owner in that
// epoch.
func (o *ownership) valid(inc *incarnation, epoch uint64) bool {
	return o.holder == inc && o.epoch == epoch && time.Now().Before(o.expires)
}

// holds compares the epoch of a write.
func (o *ownership) holds(d *storeClient) bool {
	return d.epoch == 0 || o.w.defect.IgnoresEpochs || o.valid(d.inc, d.epoch)
}

// member is one fenced of those that share the store; it implements state.Owners.
type member struct {
	inc   *incarnation
	until time.Time // guarded by the world's mutex
	known state.Owner
	aside bool // it leaves the cluster to the others; guarded by the world's mutex
}

// sessionAside is how long an owner keeps the cluster before it steps aside.
const sessionAside = time.Minute

// Add implements state.Owners: there is one cluster, which each fenced is configured for.
func (m *member) Add(string) {}

// Remove implements state.Owners.
func (m *member) Remove(string) {}

// StepAside implements state.Owners.
func (m *member) StepAside(_ string, aside bool) bool {
	m.inc.i.w.do(func() {
		if m.aside != aside {
			m.aside = aside
			m.inc.i.w.note("", "%s steps aside: %t", m.inc, aside)
		}
	})
	return true
}

// next is another fenced that stands by; nil if there is none. w.mu is held.
func (m *member) next() *incarnation {
	for _, i := range m.inc.i.w.instances {
		if c := i.cur; i != m.inc.i && c != nil && !c.dead && c.engine != nil && c.member != nil && !c.member.aside && !time.Now().Before(i.storeCut) {
			return c
		}
	}
	return nil
}

// Run implements state.Owners.
func (m *member) Run(ctx context.Context, guard func(context.Context, state.Claim)) error {
	for ctx.Err() == nil {
		if epoch := m.take(); epoch != 0 {
			m.hold(ctx, epoch, guard)
		}
		_ = sleep(ctx, time.Second)
	}
	return nil
}

// take makes this fenced the owner if there is none; 0 means that there is one,
// or that it is not known.
func (m *member) take() (epoch uint64) {
	w := m.inc.i.w
	w.do(func() {
		o := w.owners
		if m.inc.dead || time.Now().Before(m.inc.i.storeCut) {
			return
		}
		if o.holder != nil && time.Now().Before(o.expires) {
			m.known = state.Owner{Instance: o.holder.i.name, Epoch: o.epoch}
			return
		}
		free := o.expires
		if o.holder == nil {
			free = o.freed
		}
		if m.aside && m.next() != nil && time.Since(free) < 2*sessionTTL {
			return
		}
		o.epoch++
		o.since = time.Now()
		o.holder, o.expires, m.until = m.inc, time.Now().Add(sessionTTL), time.Now().Add(sessionTTL)
		m.known = state.Owner{Instance: m.inc.i.name, Epoch: o.epoch}
		w.note("", "%s owns the cluster in epoch %d", m.inc, o.epoch)
		w.outcome.Handovers++
		epoch = o.epoch
	})
	return epoch
}

// hold owns the cluster until the session is lost or released.
func (m *member) hold(ctx context.Context, epoch uint64, guard func(context.Context, state.Claim)) {
	w := m.inc.i.w
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		guard(ctx, state.Claim{Cluster: cluster, Epoch: epoch, Store: &storeClient{inc: m.inc, epoch: epoch}, Until: m.deadline})
	}()
	renewed := time.Now()
	for lost := false; !lost; {
		select {
		case <-done:
			lost = true
		case <-time.After(500 * time.Millisecond):
		}
		w.do(func() {
			o := w.owners
			now := time.Now()
			switch {
			case lost, m.inc.dead:
				lost = true
			case w.defect.IgnoresEpochs: // it does not notice the loss
			case !o.valid(m.inc, epoch), !now.Before(m.until):
				lost = true
				w.note("", "%s has lost epoch %d", m.inc, epoch)
			case now.Sub(renewed) >= renewOwner && !now.Before(m.inc.i.storeCut):
				renewed, o.expires, m.until = now, now.Add(sessionTTL), now.Add(sessionTTL)
			}
			if m.inc.i.handOver || m.aside && now.Sub(o.since) >= sessionAside && m.next() != nil {
				m.inc.i.handOver, lost = false, true
			}
		})
		lost = lost || ctx.Err() != nil
	}
	cancel()
	<-done
	w.do(func() {
		if o := w.owners; o.valid(m.inc, epoch) && !m.inc.dead && !time.Now().Before(m.inc.i.storeCut) {
			o.holder, o.freed = nil, time.Now()
			w.note("", "%s gives epoch %d up", m.inc, epoch)
		}
	})
}

// deadline is state.Claim's Until.
func (m *member) deadline() (until time.Time) {
	m.inc.i.w.do(func() {
		if until = m.until; m.inc.i.w.defect.IgnoresEpochs {
			until = time.Time{}
		}
	})
	return until
}

func (m *member) Owner(string) (o state.Owner) {
	m.inc.i.w.do(func() { o = m.known })
	return o
}
