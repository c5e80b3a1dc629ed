// Package boltstore keeps the state in one bbolt file. Only one process at a time can open
// the file.
package boltstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/fenced/fenced/internal/state"
)

// store is a state.Store. Each value in a bucket is the version of the record in eight bytes,
// followed by its data.
type store struct {
	db      *bolt.DB
	commits *commits
}

// Open opens the state file at path, or creates it. Only the owner of the file can read it.
//
// Open returns state.ErrLocked if another process has the file open, and state.ErrFuture if
// the file has a newer schema. It also refuses a damaged file, a file of another program,
// and anything that is not a regular file, such as a link or a pipe. The content
// of a refused file does not change.
func Open(path string) (state.Store, error) {
	db, file, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("open state file %s: %w", path, err)
	}
	s := &store{db: db, commits: &commits{db: db, turn: make(chan struct{}, 1)}}
	if err := s.prepareSchema(file); err != nil {
		return nil, fmt.Errorf("open state file %s: %w", path, errors.Join(err, db.Close()))
	}
	if _, err := state.ID(context.Background(), s); err != nil {
		return nil, fmt.Errorf("open state file %s: %w", path, errors.Join(err, db.Close()))
	}
	return s, nil
}

// Get implements state.Store.
func (s *store) Get(ctx context.Context, kind state.Kind, key string) (r state.Record, err error) {
	err = s.view(ctx, kind, func(b *bolt.Bucket) error {
		v := b.Get([]byte(key))
		if v == nil {
			return state.ErrNotFound
		}
		r, err = unpack(kind, key, v)
		return err
	})
	if err != nil {
		return state.Record{}, fmt.Errorf("get %s: %w", state.RecordName(kind, key), err)
	}
	return r, nil
}

// Put implements state.Store.
func (s *store) Put(ctx context.Context, r state.Record) (version uint64, err error) {
	if err := state.CheckKey(r.Kind, r.Key); err != nil {
		return 0, err
	}
	if len(r.Data) > state.MaxData {
		return 0, fmt.Errorf("put %s: %d bytes are more than %d", state.RecordName(r.Kind, r.Key), len(r.Data), state.MaxData)
	}
	err = s.update(ctx, r.Kind, func(tx *bolt.Tx, b *bolt.Bucket) error {
		old, err := versionOf(b, r.Key)
		switch {
		case err != nil && !errors.Is(err, state.ErrNotFound):
			return err
		case r.Version == 0 && err == nil:
			return state.ErrExists
		case r.Version != old:
			return state.ErrConflict
		}
		version, err = tx.Bucket(metaBucket).NextSequence()
		if err != nil {
			return err
		}
		return b.Put([]byte(r.Key), append(binary.BigEndian.AppendUint64(nil, version), r.Data...))
	})
	if err != nil {
		return 0, fmt.Errorf("put %s: %w", state.RecordName(r.Kind, r.Key), err)
	}
	return version, nil
}

// Delete implements state.Store.
func (s *store) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	err := s.update(ctx, kind, func(_ *bolt.Tx, b *bolt.Bucket) error {
		old, err := versionOf(b, key)
		if err != nil {
			return err
		}
		if old != version {
			return state.ErrConflict
		}
		return b.Delete([]byte(key))
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", state.RecordName(kind, key), err)
	}
	return nil
}

// List implements state.Store.
func (s *store) List(ctx context.Context, kind state.Kind) (list []state.Record, err error) {
	err = s.view(ctx, kind, func(b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			r, err := unpack(kind, string(k), v)
			list = append(list, r)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list %s records: %w", kind, err)
	}
	return list, nil
}

// Watch implements state.Store. It returns nil: the lock of the file excludes other users.
func (s *store) Watch(context.Context) <-chan struct{} { return nil }

// Close implements state.Store.
func (s *store) Close() error { return s.db.Close() }

func (s *store) view(ctx context.Context, kind state.Kind, do func(*bolt.Bucket) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.db.View(func(tx *bolt.Tx) error {
		b, err := bucket(tx, kind)
		if err != nil {
			return err
		}
		return do(b)
	})
}

// update makes one change, and returns when it is durable.
func (s *store) update(ctx context.Context, kind state.Kind, do func(*bolt.Tx, *bolt.Bucket) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.commits.wait(s.commits.add(ctx, func(tx *bolt.Tx) error {
		b, err := bucket(tx, kind)
		if err != nil {
			return err
		}
		return do(tx, b)
	}))
}

func bucket(tx *bolt.Tx, kind state.Kind) (*bolt.Bucket, error) {
	if err := state.CheckKind(kind); err != nil {
		return nil, err
	}
	b := tx.Bucket([]byte(kind))
	if b == nil {
		return nil, errors.New("the file is damaged: the bucket of this kind is missing")
	}
	return b, nil
}

// unpack returns the record of a value. It copies the data, because the memory of bbolt is
// valid only during the transaction.
func unpack(kind state.Kind, key string, v []byte) (state.Record, error) {
	if len(v) < 8 {
		return state.Record{}, fmt.Errorf("%s is damaged: %d bytes", state.RecordName(kind, key), len(v))
	}
	return state.Record{
		Kind: kind, Key: key,
		Version: binary.BigEndian.Uint64(v),
		Data:    append([]byte{}, v[8:]...),
	}, nil
}

// versionOf returns the version of a record, or state.ErrNotFound.
func versionOf(b *bolt.Bucket, key string) (uint64, error) {
	v := b.Get([]byte(key))
	if v == nil {
		return 0, state.ErrNotFound
	}
	if len(v) < 8 {
		return 0, fmt.Errorf("the stored value is damaged: %d bytes", len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

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
		c.mu.Lock()
		list := c.waiting // in the order in which they came
		c.waiting = nil
		c.mu.Unlock()
		c.commit(list)
	}
	return ch.err
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
