package lead

import (
	"context"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

// Leadership is the time in which this instance owns a cluster. Everything that acts on the cluster
// runs in a leadership, and has stopped when it is over.
type Leadership struct {
	claim        state.Claim
	awake        suspend.Awake // a leadership ends with a suspend of this host
	lease        leaseStatus
	slots        slotQueue
	compareSlots chan struct{}   // runs may have begun or ended
	lost         <-chan struct{} // closed when the claim is lost, or is to be released
	ctx          context.Context

	mu     sync.Mutex
	over   bool
	inside sync.WaitGroup
}

func newLeadership(ctx context.Context, claim state.Claim, awake suspend.Awake) *Leadership {
	return &Leadership{claim: claim, awake: awake, compareSlots: make(chan struct{}, 1), lost: ctx.Done(), ctx: ctx}
}

// Spawn runs f in a goroutine, in the leadership. It returns false if that is over.
func (t *Leadership) Spawn(f func(context.Context)) bool {
	if !t.enter() {
		return false
	}
	defer t.Leave()
	t.Go(f)
	return true
}

// Go is Spawn for a caller that runs in the leadership, so that it cannot be over.
func (t *Leadership) Go(f func(context.Context)) { t.inside.Go(func() { f(t.ctx) }) }

// enter keeps the leadership from ending until the caller calls Leave. It returns false if the
// leadership is over.
func (t *Leadership) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.inside.Add(1)
	}
	return !t.over
}

// Leave lets the leadership end again. Call it once for each Enter.
func (t *Leadership) Leave() { t.inside.Done() }

// end lets nothing more begin in the leadership, and waits until everything in it has stopped.
func (t *Leadership) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.inside.Wait()
}

// until returns when this instance must stop acting, as far as is known now: when its claim ends
// and, for a destructive action, when another installation may begin to act. by is zero if there is
// no such end. why says why this instance must not act at all; "" if it may.
func (t *Leadership) until(destructive bool, now time.Time) (by time.Time, why string) {
	if why := t.awake.Over(); why != "" {
		return time.Time{}, why
	}
	by = t.claim.Until()
	if !destructive {
		return by, ""
	}
	announced, why := t.lease.until(now)
	if by.IsZero() || !announced.IsZero() && announced.Before(by) {
		by = announced
	}
	return by, why
}

// ending reports whether the claim is lost, or is to be released.
func (t *Leadership) ending() bool {
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

// boundCheck is how often an action in progress is checked. A claim is renewed less often.
const boundCheck = time.Second

// bound returns a context that ends with the claim and with the cluster's Lease. Both are renewed
// while the action is in progress, so the end moves: an agent may take longer than what is left of
// them at any moment. If one is not renewed, the context ends at the last known end. If one is lost
// earlier, the context ends at once. The caller runs in the leadership. // I19, I22
func (t *Leadership) bound(ctx context.Context, destructive bool, by time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if by.IsZero() {
		return ctx, cancel
	}
	t.Go(func(context.Context) {
		defer cancel()
		for now := time.Now(); now.Before(by); now = time.Now() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(boundCheck, by.Sub(now))):
			}
			if t.awake.Over() != "" {
				return
			}
			if t.ending() { // a renewal from now on is not this instance's
				continue
			}
			var why string
			if by, why = t.until(destructive, time.Now()); why != "" {
				return
			}
		}
	})
	return ctx, cancel
}
