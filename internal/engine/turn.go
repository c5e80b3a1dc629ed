package engine

import (
	"context"
	"fmt"
)

// turn is a lock that is held during I/O. Whoever waits for it waits on a channel, as
// if for the I/O itself: in virtual time (testing/synctest) the clock goes on
// meanwhile, which it does not for those who wait for a mutex.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// lock waits for the turn, as long as ctx lasts: who has it may wait for a store that
// hangs.
func (t turn) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until another change is stored: %w", ctx.Err())
	}
}

func (t turn) unlock() { <-t }
