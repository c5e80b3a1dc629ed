package boltstore

import (
	"context"
	"errors"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/fenced/fenced/internal/state"
)

// commits makes changes durable. Changes that come while a commit is in progress share the next
// one, with its fsyncs. Nobody waits for others to come, so a change that comes alone is as fast
// as in a transaction of its own. // I19
type commits struct {
	db   *bolt.DB
	turn chan struct{} // holds a value while somebody commits

	mu      sync.Mutex
	waiting []*change
}

// change is a change that waits for its commit.
type change struct {
	ctx  context.Context
	do   func(*bolt.Tx) error
	done chan struct{} // closed when err is set
	err  error
}

// errNotCommitted is the result of a change until its commit has ended.
var errNotCommitted = errors.New("the commit did not end")

func newCommits(db *bolt.DB) *commits { return &commits{db: db, turn: make(chan struct{}, 1)} }

// add queues a change. If ctx ends before its transaction begins, nothing is changed.
func (c *commits) add(ctx context.Context, do func(*bolt.Tx) error) *change {
	ch := &change{ctx: ctx, do: do, done: make(chan struct{}), err: errNotCommitted}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, ch)
	return ch
}

// wait returns the result of a change. nil means that the change is durable. One of those who
// wait commits for all.
func (c *commits) wait(ch *change) error {
	select {
	case <-ch.done:
		return ch.err
	case c.turn <- struct{}{}:
	}
	defer func() { <-c.turn }()
	select {
	case <-ch.done: // the commit before was for this change, too
	default:
		c.commit(c.take())
	}
	return ch.err
}

// take returns the changes that wait, in the order in which they came.
func (c *commits) take() []*change {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.waiting
	c.waiting = nil
	return list
}

// commit makes changes in one transaction. Each of them sees those before it, as if each had a
// transaction of its own. One that is refused has changed nothing, and does not affect the
// others.
func (c *commits) commit(list []*change) {
	defer func() {
		for _, ch := range list {
			close(ch.done)
		}
	}()
	results := make([]error, len(list))
	broken := false // one of them failed, so all were rolled back
	err := c.db.Update(func(tx *bolt.Tx) error {
		for i, ch := range list {
			if results[i] = ch.ctx.Err(); results[i] != nil {
				continue
			}
			if results[i] = ch.do(tx); results[i] != nil && !isRefusal(results[i]) {
				broken = true
				return results[i]
			}
		}
		return nil
	})
	for i, ch := range list {
		switch {
		case broken: // the failure of one is not that of the others
			ch.err = c.alone(ch)
		case err != nil: // nobody knows what is on the disk, not even of a refusal: it may be due to one of these changes
			ch.err = err
		default:
			ch.err = results[i]
		}
	}
}

// alone makes a change in a transaction of its own.
func (c *commits) alone(ch *change) error {
	if err := ch.ctx.Err(); err != nil {
		return err
	}
	return c.db.Update(ch.do)
}

// isRefusal reports whether a change was refused before it changed anything.
func isRefusal(err error) bool {
	return errors.Is(err, state.ErrExists) || errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrNotFound)
}
