package lead

import (
	"context"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

// Leadership is the time in which this instance owns a cluster. Everything that acts there
// runs in it, and has ended when it is over.
type Leadership struct {
	claim  state.Claim
	awake  suspend.Awake // it does not outlast a suspend
	lease  leaseStatus
	settle chan struct{}   // runs may have begun or ended: their slots are to be compared
	lost   <-chan struct{} // closed when the claim is lost, or is to be given up
	ctx    context.Context

	mu     sync.Mutex
	over   bool
	inside sync.WaitGroup
}

func newLeadership(ctx context.Context, claim state.Claim, awake suspend.Awake) *Leadership {
	return &Leadership{claim: claim, awake: awake, settle: make(chan struct{}, 1), lost: ctx.Done(), ctx: ctx}
}

// Spawn runs f in the leadership; false when that is over.
func (t *Leadership) Spawn(f func(context.Context)) bool {
	if !t.enter() {
		return false
	}
	defer t.Leave()
	t.Go(f)
	return true
}

// Go is Spawn for a caller that is inside of the leadership, so that it cannot be over.
func (t *Leadership) Go(f func(context.Context)) { t.inside.Go(func() { f(t.ctx) }) }

// enter keeps the leadership from ending until Leave is called; false when it is over.
func (t *Leadership) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.inside.Add(1)
	}
	return !t.over
}

// Leave ends what Enter began.
func (t *Leadership) Leave() { t.inside.Done() }

// end waits until all that runs in the leadership has stopped, and lets nothing more begin.
func (t *Leadership) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.inside.Wait()
}

// until is how long this instance owns the cluster and, for what is destructive, nobody
// else acts there, as far as is known now: zero for no such end, or why that is over.
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

// ending says whether the claim was lost, or is to be handed over.
func (t *Leadership) ending() bool {
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

// boundCheck is how often it is asked whether an action that is under way may go on: a
// claim is renewed more rarely than that.
const boundCheck = time.Second

// bound ends an action that is begun now with the claim and the Lease of the cluster.
// Both are renewed while it goes on, so the end moves: an agent may need longer than
// either lasts at any moment. What is not renewed cuts the action off at the last end that
// is known, and what is lost before that cuts it off at once. The caller is inside of the
// leadership. // I19, I22
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
			if t.ending() { // what is renewed now is no more ours
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
