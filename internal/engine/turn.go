package engine

import (
	"context"
	"fmt"
)

// ctxMutex is a lock that is held during I/O. Whoever waits for it waits on a channel, as
// if for the I/O itself: in virtual time (testing/synctest) the clock goes on
// meanwhile, which it does not for those who wait for a mutex.
type ctxMutex chan struct{}

func newCtxMutex() ctxMutex { return make(ctxMutex, 1) }

// lock waits for the turn, as long as ctx lasts: who has it may wait for a store that
// hangs.
func (t ctxMutex) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until another change is stored: %w", ctx.Err())
	}
}

func (t ctxMutex) unlock() { <-t }
