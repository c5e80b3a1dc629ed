package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

var errClosed = errors.New("the store is closed")

// passing are the answers of a member of etcd after which another attempt may
// succeed.
var passing = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrStopped, rpctypes.ErrTimeout,
	rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex,
	rpctypes.ErrUnhealthy, rpctypes.ErrTooManyRequests,
}

// try makes attempts until one succeeds, is answered for good, or the time of a call
// is over. What do does must be the same however often it is done: after an attempt
// that failed nobody knows whether etcd still carries it out.
func (s *store) try(ctx context.Context, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer within %s", callTimeout))
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 400*time.Millisecond) {
		attempt, stop := context.WithTimeout(ctx, attemptTimeout)
		err := do(attempt)
		stop()
		switch {
		case err == nil:
			return nil
		case s.client.Ctx().Err() != nil:
			return errClosed
		case !passes(err):
			return err
		}
		select {
		case <-ctx.Done():
			return cut(context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// cut is the error of a call whose time ended after a failed attempt.
func cut(cause, err error) error {
	if cause.Error() == err.Error() { // the attempt ended with the call
		return cause
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// passes says whether a failed attempt was answered by nobody who could know.
func passes(err error) bool {
	var own *conclusion
	var said rpctypes.EtcdError
	switch {
	case errors.As(err, &own):
		return false
	case errors.As(err, &said):
		return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
	}
	return true
}

// conclusion is drawn from what the store answered; no other attempt changes it.
type conclusion struct{ error }

func (c *conclusion) Unwrap() error { return c.error }

// conclude keeps nil.
func conclude(err error) error {
	if err == nil {
		return nil
	}
	return &conclusion{err}
}
