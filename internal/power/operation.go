package power

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// ErrInUse marks the error of an operation that was not carried out, or not
// completed, because others use the BMC. It is no failure of the BMC.
var ErrInUse = errors.New("the BMC is in use")

// errNotAsked marks the error of an operation that never had its turn.
var errNotAsked = errors.New("not asked")

var errClosed = errors.New("used after it was closed")

// grace is how long to wait for an operation after its ctx ended. A Power must
// end it then, and knows best what happened. After that the wait ends.
const grace = 100 * time.Millisecond

// operation is one use of a client.
type operation struct {
	name     string
	handle   *handle
	urgent   bool
	commands bool // it may change the power state
	closes   bool
	caller   context.Context // of the call that waits for it
	run      func(context.Context)
	done     chan struct{} // closed at the end

	started  time.Time
	cancel   context.CancelFunc
	yielded  bool // cancelled for an urgent operation
	dropped  bool // its handle was closed before its turn
	closeErr error
}

// ask queues op, waits for its turn and runs f.
func ask[T any](ctx context.Context, op *operation, f func(context.Context, bmc.Power) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	got := make(chan answer, 1) // buffered: the caller may stop waiting before op ends
	op.caller = ctx
	op.run = func(ctx context.Context) {
		value, err := f(ctx, op.handle.client.power)
		got <- answer{value, err}
	}
	if err := op.handle.service.submit(op); err != nil {
		return none, err
	}
	select {
	case <-op.done:
	case <-ctx.Done():
		if err := op.handle.service.abandon(op); err != nil {
			return none, err
		}
	}
	if op.dropped {
		return none, op.fail(bmc.KindUnsupported, bmc.SentNo, errClosed)
	}
	a := <-got
	if a.err != nil && op.yielded {
		return none, op.fail(bmc.KindBusy, bmc.SentNo, fmt.Errorf("%w: cancelled for a more urgent operation", ErrInUse))
	}
	return a.value, a.err
}

// fail returns the error of an operation that the actor ends.
func (o *operation) fail(k bmc.Kind, sent bmc.Sent, err error) error {
	return &bmc.Error{Kind: k, Op: o.name, Addr: o.handle.client.device.String(), Sent: sent, Err: err}
}

// busy returns why op did not get its turn while r was running.
func (o *operation) busy(r *operation) error {
	ended := o.caller.Err()
	switch {
	case r == nil:
		return o.fail(bmc.KindBusy, bmc.SentNo, fmt.Errorf("%w: its last operation ended a moment ago: %w", ErrInUse, ended))
	case r.isHung():
		return o.fail(bmc.KindUnreachable, bmc.SentNo, fmt.Errorf("%w: %q has been hanging there for %s: %w", errNotAsked, r.name, time.Since(r.started).Round(time.Second), ended))
	}
	return o.fail(bmc.KindBusy, bmc.SentNo, fmt.Errorf("%w: %q is in progress: %w", ErrInUse, r.name, ended))
}

// isHung reports whether o is running and should have returned.
func (o *operation) isHung() bool {
	return o.yielded || o.caller.Err() != nil || o.closes && time.Since(o.started) > closeTimeout+grace
}
