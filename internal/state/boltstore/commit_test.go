package boltstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/must"
)

func open(t *testing.T) *store {
	t.Helper()
	s := must.Do(Open(filepath.Join(t.TempDir(), "state.db")))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s.(*store)
}

// commitsOf returns how many transactions have changed the file.
func commitsOf(t *testing.T, s *store) (n int) {
	t.Helper()
	require.NoError(t, s.db.View(func(tx *bolt.Tx) error {
		n = tx.ID()
		return nil
	}))
	return n
}

// together does things while somebody else commits, so that all of them share the next commit.
// They come in their order.
func together(t *testing.T, s *store, do ...func()) {
	t.Helper()
	s.commits.turn <- struct{}{}
	var g sync.WaitGroup
	for i, f := range do {
		g.Go(f)
		require.Eventually(t, func() bool {
			s.commits.mu.Lock()
			defer s.commits.mu.Unlock()
			return len(s.commits.waiting) == i+1
		}, time.Minute, time.Millisecond)
	}
	<-s.commits.turn
	g.Wait()
}

func record(key string, version uint64) state.Record {
	return state.Record{Kind: state.KindRun, Key: key, Version: version, Data: []byte(key)}
}

func TestSavesOfOneMomentShareACommit(t *testing.T) {
	t.Parallel()
	s := open(t)
	before := commitsOf(t, s)
	versions := make([]uint64, 100)
	var saves []func()
	for i := range versions {
		saves = append(saves, func() {
			var err error
			versions[i], err = s.Put(t.Context(), record(fmt.Sprint(i), 0))
			assert.NoError(t, err)
		})
	}
	together(t, s, saves...)
	assert.Equal(t, 1, commitsOf(t, s)-before)
	for i, v := range versions {
		r := must.Do(s.Get(t.Context(), state.KindRun, fmt.Sprint(i)))(t)
		assert.Equal(t, v, r.Version)
		assert.Equal(t, fmt.Sprint(i), string(r.Data))
		for _, other := range versions[i+1:] {
			require.NotEqual(t, v, other, "a version is used once")
		}
	}
}

// Changes that share a commit compare and set as if each had been alone, and one that is refused
// does not take the others with it. // I19
func TestChangesThatShareACommitAreComparedEach(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	first := must.Do(s.Put(ctx, record("a", 0)))(t)
	gone, leave := context.WithCancel(ctx)
	var errs [7]error
	var second uint64
	put := func(i int, ctx context.Context, key string, version uint64) func() {
		return func() { _, errs[i] = s.Put(ctx, record(key, version)) }
	}
	together(t, s,
		func() { second, errs[0] = s.Put(ctx, record("a", first)) },
		put(1, ctx, "a", first),
		put(2, ctx, "b", 0),
		put(3, ctx, "b", 0),
		put(4, gone, "c", 0),
		func() {
			leave() // after the one before has come
			errs[5] = s.Delete(ctx, state.KindRun, "d", 1)
		},
		put(6, ctx, "e", 0),
	)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], state.ErrConflict)
	require.NoError(t, errs[2])
	require.ErrorIs(t, errs[3], state.ErrExists)
	require.ErrorIs(t, errs[4], context.Canceled)
	require.ErrorIs(t, errs[5], state.ErrNotFound)
	require.NoError(t, errs[6])
	list := must.Do(s.List(ctx, state.KindRun))(t)
	var keys []string
	for _, r := range list {
		keys = append(keys, r.Key)
	}
	assert.Equal(t, []string{"a", "b", "e"}, keys)
	assert.Equal(t, second, list[0].Version)
}

// A change that fails half way is undone, and the others that share its commit are made.
func TestFailureOfOneChangeIsNotThatOfOthers(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	broken := errors.New("broken")
	var errs [3]error
	together(t, s,
		func() { _, errs[0] = s.Put(ctx, record("a", 0)) },
		func() {
			errs[1] = s.update(ctx, state.KindRun, func(_ *bolt.Tx, b *bolt.Bucket) error {
				return errors.Join(b.Put([]byte("half"), []byte("12345678")), broken)
			})
		},
		func() { _, errs[2] = s.Put(ctx, record("b", 0)) },
	)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], broken)
	require.NoError(t, errs[2])
	_, err := s.Get(ctx, state.KindRun, "half")
	require.ErrorIs(t, err, state.ErrNotFound)
	for _, key := range []string{"a", "b"} {
		must.Do(s.Get(ctx, state.KindRun, key))(t)
	}
}

// If the commit itself fails, nobody is told anything definite: a refusal may be due to another
// change of the same commit.
func TestFailedCommitTellsNobodyMore(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	version := must.Do(s.Put(ctx, record("a", 0)))(t)
	s.db.MaxSize = 1 // the file must not grow
	var errs [3]error
	together(t, s,
		func() { errs[0] = s.Delete(ctx, state.KindRun, "a", version) },
		func() { errs[1] = s.Delete(ctx, state.KindRun, "a", version) },
		func() {
			large := record("large", 0)
			large.Data = make([]byte, state.MaxData)
			_, errs[2] = s.Put(ctx, large)
		},
	)
	for i, err := range errs {
		require.ErrorIs(t, err, berrors.ErrMaxSizeReached, i)
		require.NotErrorIs(t, err, state.ErrNotFound, i)
	}
	s.db.MaxSize = 0
	must.Do(s.Get(ctx, state.KindRun, "a"))(t)
	_, err := s.Put(ctx, record("b", 0))
	require.NoError(t, err, "the store goes on")
}

// One who panics tells those who wait with it that nothing is certain.
func TestChangeWithoutACommitIsNoSuccess(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	before := s.commits.add(ctx, func(*bolt.Tx) error { return nil })
	ch := s.commits.add(ctx, func(*bolt.Tx) error { panic("damaged") })
	assert.PanicsWithValue(t, "damaged", func() { _ = s.commits.wait(ch) })
	require.ErrorIs(t, s.commits.wait(before), errNotCommitted)
	must.Do(s.Put(ctx, record("a", 0)))(t)
}
