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

// retryableErrors are the errors of a member after which another attempt may succeed.
var retryableErrors = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrStopped, rpctypes.ErrTimeout,
	rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex,
	rpctypes.ErrUnhealthy, rpctypes.ErrTooManyRequests,
}

// retry calls do until it succeeds or fails with an error that is not retryable, but for
// callTimeout at most. do must be idempotent: after an attempt that failed, etcd may still
// carry it out.
func (s *store) retry(ctx context.Context, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.callTimeout, fmt.Errorf("no answer within %s", s.callTimeout))
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
		case !isRetryable(err):
			return err
		}
		select {
		case <-ctx.Done():
			return timeoutError(context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// timeoutError returns the error of a call whose time ended. err is the error of the last
// attempt.
func timeoutError(cause, err error) error {
	if cause.Error() == err.Error() { // the last attempt ended with the call
		return cause
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// isRetryable returns whether another attempt may succeed. If it may, etcd has not said
// whether it carried out the failed one.
func isRetryable(err error) bool {
	var finalErr *finalError
	var etcdErr rpctypes.EtcdError
	switch {
	case errors.As(err, &finalErr):
		return false
	case errors.As(err, &etcdErr):
		return slices.ContainsFunc(retryableErrors, func(p error) bool { return errors.Is(err, p) })
	}
	return true
}

// finalError is an error that follows from an answer of etcd. Another attempt does not change
// it.
type finalError struct{ error }

func (c *finalError) Unwrap() error { return c.error }

// final makes err a finalError. It returns nil for nil.
func final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}
