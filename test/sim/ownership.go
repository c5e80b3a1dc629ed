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
			if m.inc.i.handOver {
				m.inc.i.handOver, lost = false, true
			}
		})
		lost = lost || ctx.Err() != nil
	}
	cancel()
	<-done
	w.do(func() {
		if o := w.owners; o.valid(m.inc, epoch) && !m.inc.dead && !time.Now().Before(m.inc.i.storeCut) {
			o.holder = nil
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
