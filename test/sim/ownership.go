package sim

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/state"
)

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

// Owner implements state.Owners.
func (m *member) Owner(string) (o state.Owner) {
	m.inc.i.w.do(func() { o = m.known })
	return o
}
