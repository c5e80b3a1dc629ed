// Package statetest is the conformance suite of state.Store, with crashes. Every engine must
// pass it. The package also has helpers for the tests of exports.
package statetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/must"
)

// Engine is the engine under test.
type Engine struct {
	// NewPath returns the path of a store that does not exist yet. Another process must
	// be able to use the same path.
	NewPath func(t *testing.T) string
	// Open opens or creates the store at the path. It must have every record that was
	// put before a Close or a crash.
	Open func(path string) (state.Store, error)
	// Soak kills many more writers. The calling test sets it from dice.Soak, so that
	// docs/testing.md lists that test as one with a long form.
	Soak bool
}

// File is the NewPath of an engine that keeps one file.
func File(t *testing.T) string { return filepath.Join(t.TempDir(), "state.db") }

// Run tests an engine. The test that calls Run must do nothing before it: the suite runs that
// test again in another process, which it kills.
func Run(t *testing.T, e Engine) {
	if path := os.Getenv(writerEnv); path != "" {
		write := writeUntilKilled
		if os.Getenv(manyEnv) != "" {
			write = manyWriteUntilKilled
		}
		write(t, e, path)
		return
	}
	t.Run("put and get", func(t *testing.T) { putAndGet(t, start(t, e)) })
	t.Run("compare and set", func(t *testing.T) { compareAndSet(t, start(t, e)) })
	t.Run("versions are never used twice", func(t *testing.T) { versions(t, start(t, e)) })
	t.Run("delete", func(t *testing.T) { deletes(t, start(t, e)) })
	t.Run("list in key order", func(t *testing.T) { lists(t, start(t, e)) })
	t.Run("refused records", func(t *testing.T) { refusals(t, start(t, e)) })
	t.Run("a context that is over", func(t *testing.T) { cancelled(t, start(t, e)) })
	t.Run("one of many writers wins", func(t *testing.T) { race(t, start(t, e)) })
	t.Run("watch", func(t *testing.T) { watches(t, e) })
	t.Run("reopen", func(t *testing.T) { reopen(t, e) })
	t.Run("kill -9", func(t *testing.T) { crash(t, e) })
	t.Run("kill -9 of many writers", func(t *testing.T) { crashOfMany(t, e) })
}

func start(t *testing.T, e Engine) state.Store {
	s := must.Do(e.Open(e.NewPath(t)))(t)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func putAndGet(t *testing.T, s state.Store) {
	ctx := t.Context()
	_, err := s.Get(ctx, state.KindRun, "r1")
	require.ErrorIs(t, err, state.ErrNotFound)

	data := []byte("one")
	v := must.Do(s.Put(ctx, state.Record{Kind: state.KindRun, Key: "r1", Data: data}))(t)
	require.NotZero(t, v)
	data[0] = 'X' // the store must not share the caller's bytes

	r := must.Do(s.Get(ctx, state.KindRun, "r1"))(t)
	require.Equal(t, state.Record{Kind: state.KindRun, Key: "r1", Version: v, Data: []byte("one")}, r)
	r.Data[0] = 'Y' // nor give its own bytes to the caller
	again := must.Do(s.Get(ctx, state.KindRun, "r1"))(t)
	require.Equal(t, "one", string(again.Data))

	for _, kind := range []state.Kind{state.KindBackup, state.KindCluster, state.KindPin, state.KindFreeze, state.KindHold, state.KindSlot, state.KindMeta} {
		_, err = s.Get(ctx, kind, "r1")
		require.ErrorIs(t, err, state.ErrNotFound, "kinds do not share keys")
		_, err = s.Put(ctx, state.Record{Kind: kind, Key: "r1"})
		require.NoError(t, err, "%s", kind)
	}
}

func compareAndSet(t *testing.T, s state.Store) {
	ctx := t.Context()
	put := func(version uint64, data string) (uint64, error) {
		return s.Put(ctx, state.Record{Kind: state.KindPin, Key: "h", Version: version, Data: []byte(data)})
	}
	_, err := put(7, "absent")
	require.ErrorIs(t, err, state.ErrConflict, "a version of what is not there")
	v1 := must.Do(put(0, "a"))(t)
	_, err = put(0, "b")
	require.ErrorIs(t, err, state.ErrExists)
	v2 := must.Do(put(v1, "c"))(t)
	require.Greater(t, v2, v1)
	_, err = put(v1, "d")
	require.ErrorIs(t, err, state.ErrConflict)
	_, err = put(v2+1, "e")
	require.ErrorIs(t, err, state.ErrConflict)

	r := must.Do(s.Get(ctx, state.KindPin, "h"))(t)
	require.Equal(t, "c", string(r.Data), "a refused put changes nothing")
	require.Equal(t, v2, r.Version)
}

// versions: after a record was deleted and created again, a write with the old version must
// fail.
func versions(t *testing.T, s state.Store) {
	ctx := t.Context()
	r := state.Record{Kind: state.KindRun, Key: "r", Data: []byte("x")}
	v1 := must.Do(s.Put(ctx, r))(t)
	require.NoError(t, s.Delete(ctx, r.Kind, r.Key, v1))
	v2 := must.Do(s.Put(ctx, r))(t)
	require.Greater(t, v2, v1)
	r.Version = v1
	_, err := s.Put(ctx, r)
	require.ErrorIs(t, err, state.ErrConflict)
}

func deletes(t *testing.T, s state.Store) {
	ctx := t.Context()
	require.ErrorIs(t, s.Delete(ctx, state.KindRun, "r", 1), state.ErrNotFound)
	v := must.Do(s.Put(ctx, state.Record{Kind: state.KindRun, Key: "r"}))(t)
	require.ErrorIs(t, s.Delete(ctx, state.KindRun, "r", v+1), state.ErrConflict)
	require.ErrorIs(t, s.Delete(ctx, state.KindRun, "r", 0), state.ErrConflict)
	require.NoError(t, s.Delete(ctx, state.KindRun, "r", v))
	_, err := s.Get(ctx, state.KindRun, "r")
	require.ErrorIs(t, err, state.ErrNotFound)
}

func lists(t *testing.T, s state.Store) {
	ctx := t.Context()
	list := must.Do(s.List(ctx, state.KindRun))(t)
	require.Empty(t, list)
	for _, key := range []string{"b", "a/2", "c", "a/10", "ä"} {
		must.Do(s.Put(ctx, state.Record{Kind: state.KindRun, Key: key, Data: []byte("of " + key)}))(t)
	}
	list = must.Do(s.List(ctx, state.KindRun))(t)
	var keys []string
	for _, r := range list {
		keys = append(keys, r.Key)
		require.Equal(t, "of "+r.Key, string(r.Data))
		require.Equal(t, state.KindRun, r.Kind)
		require.NotZero(t, r.Version)
	}
	require.Equal(t, []string{"a/10", "a/2", "b", "c", "ä"}, keys)
	other := must.Do(s.List(ctx, state.KindCluster))(t)
	require.Empty(t, other)
}

func refusals(t *testing.T, s state.Store) {
	for name, r := range map[string]state.Record{
		"no key":       {Kind: state.KindRun},
		"a long key":   {Kind: state.KindRun, Key: strings.Repeat("k", state.MaxKey+1)},
		"unknown kind": {Kind: "nonsense", Key: "k"},
		"no kind":      {Key: "k"},
		"large data":   {Kind: state.KindRun, Key: "k", Data: make([]byte, state.MaxData+1)},
	} {
		_, err := s.Put(t.Context(), r)
		require.Error(t, err, name)
	}
	_, err := s.List(t.Context(), "nonsense")
	require.Error(t, err)
	_, err = s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: strings.Repeat("k", state.MaxKey), Data: make([]byte, state.MaxData)})
	require.NoError(t, err, "the largest record")
}

func cancelled(t *testing.T, s state.Store) {
	v := must.Do(s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r", Data: []byte("x")}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, state.KindRun, "r")
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.List(ctx, state.KindRun)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Put(ctx, state.Record{Kind: state.KindRun, Key: "r", Version: v, Data: []byte("y")})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.Delete(ctx, state.KindRun, "r", v), context.Canceled)
	r := must.Do(s.Get(t.Context(), state.KindRun, "r"))(t)
	require.Equal(t, "x", string(r.Data))
}

func race(t *testing.T, s state.Store) {
	const writers = 8
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			_, errs[i] = s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r", Data: fmt.Append(nil, i)})
		})
	}
	wg.Wait()
	won := -1
	for i, err := range errs {
		if err == nil {
			require.Equal(t, -1, won, "two writers won")
			won = i
			continue
		}
		require.True(t, errors.Is(err, state.ErrExists) || errors.Is(err, state.ErrConflict), err)
	}
	require.GreaterOrEqual(t, won, 0)
	r := must.Do(s.Get(t.Context(), state.KindRun, "r"))(t)
	require.Equal(t, fmt.Sprint(won), string(r.Data))
}

func reopen(t *testing.T, e Engine) {
	path := e.NewPath(t)
	s := must.Do(e.Open(path))(t)
	id := must.Do(state.ID(t.Context(), s))(t)
	require.Len(t, id, 26)
	v := must.Do(s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r", Data: []byte("x")}))(t)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closing twice")
	_, err := s.Get(t.Context(), state.KindRun, "r")
	require.Error(t, err, "a closed store")

	s = must.Do(e.Open(path))(t)
	defer func() { assert.NoError(t, s.Close()) }()
	r := must.Do(s.Get(t.Context(), state.KindRun, "r"))(t)
	require.Equal(t, state.Record{Kind: state.KindRun, Key: "r", Version: v, Data: []byte("x")}, r)
	again := must.Do(state.ID(t.Context(), s))(t)
	require.Equal(t, id, again)
}

const (
	soon  = time.Minute            // the longest wait for a signal that must come
	quiet = 300 * time.Millisecond // the wait for a signal that must not come
)

// watches: every change by another user gives a signal until ctx ends. An engine that returns
// no channel must exclude other users.
func watches(t *testing.T, e Engine) {
	path := e.NewPath(t)
	open := func() (state.Store, error) {
		s, err := e.Open(path)
		if err == nil {
			t.Cleanup(func() { assert.NoError(t, s.Close()) })
		}
		return s, err
	}
	own := must.Do(open())(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed := own.Watch(ctx)
	other, err := open()
	if changed == nil {
		require.ErrorIs(t, err, state.ErrLocked, "there is another user, and nothing tells what he does")
		return
	}
	require.NoError(t, err)
	await(t, changed, "the watch stands")

	var v uint64
	silent(t, changed, "our own write", func() {
		v, err = own.Put(ctx, state.Record{Kind: state.KindPin, Key: "own", Version: v})
		require.NoError(t, err)
	})
	v, err = other.Put(ctx, state.Record{Kind: state.KindPin, Key: "own", Version: v})
	require.NoError(t, err)
	await(t, changed, "another user wrote")
	require.NoError(t, other.Delete(ctx, state.KindPin, "own", v))
	await(t, changed, "another user deleted")
	tracks(t, own, other, changed)
	loses(t, own, other, changed)

	cancel()
	var late uint64
	silent(t, changed, "the watch was ended", func() {
		late, err = other.Put(t.Context(), state.Record{Kind: state.KindPin, Key: "late", Version: late})
		require.NoError(t, err)
	})
}

// tracks: a store that tells the kinds of changes has counted a change before it gives the signal, and not under another kind. A watch
// that was lost meanwhile counts for all kinds, so the latter is tried again.
func tracks(t *testing.T, own, other state.Store, changed <-chan struct{}) {
	tracking, ok := own.(state.Tracking)
	if !ok {
		return
	}
	for i := range 20 {
		pins, holds := tracking.Changes(state.KindPin), tracking.Changes(state.KindHold)
		must.Do(other.Put(t.Context(), state.Record{Kind: state.KindPin, Key: fmt.Sprint("tracked-", i)}))(t)
		for tracking.Changes(state.KindPin) == pins {
			await(t, changed, "the change is counted before its signal")
		}
		if tracking.Changes(state.KindHold) == holds {
			listsAfter(t, tracking, other)
			return
		}
	}
	t.Error("a changed pin counts as a changed hold, too")
}

// listsAfter: what is listed after a version is what was written since, also when it does not fit in one answer.
func listsAfter(t *testing.T, own state.Tracking, other state.Store) {
	put := func(key string, version uint64) uint64 {
		return must.Do(other.Put(t.Context(), state.Record{Kind: state.KindHold, Key: key, Version: version, Data: []byte(key)}))(t)
	}
	const many = 70
	versions := map[string]uint64{}
	for i := range many {
		key := fmt.Sprintf("after-%03d", i)
		versions[key] = put(key, 0)
	}
	all := must.Do(own.List(t.Context(), state.KindHold))(t)
	read := slices.MaxFunc(all, func(a, b state.Record) int { return cmp.Compare(a.Version, b.Version) }).Version
	require.Empty(t, must.Do(own.ListAfter(t.Context(), state.KindHold, read))(t))
	require.Equal(t, all, must.Do(own.ListAfter(t.Context(), state.KindHold, 0))(t))
	put("after-new", 0)
	for key, version := range versions {
		put(key, version)
	}
	changed := must.Do(own.ListAfter(t.Context(), state.KindHold, read))(t)
	require.Len(t, changed, many+1)
	require.Equal(t, must.Do(own.List(t.Context(), state.KindHold))(t), changed, "in the same order, with the same content")
	require.Len(t, must.Do(own.ListAfter(t.Context(), state.KindHold, versions["after-000"]))(t), many+1)
}

// loses: one signal may stand for several changes, but a reader that reads after each signal
// sees all changes in the end.
func loses(t *testing.T, own, other state.Store, changed <-chan struct{}) {
	const writes = 30
	wrote := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < writes && err == nil; i++ {
			_, err = other.Put(t.Context(), state.Record{Kind: state.KindHold, Key: fmt.Sprint(i)})
		}
		wrote <- err
	}()
	for seen := 0; seen < writes; {
		await(t, changed, fmt.Sprintf("%d of %d changes were seen", seen, writes))
		list := must.Do(own.List(t.Context(), state.KindHold))(t)
		seen = len(list)
	}
	require.NoError(t, <-wrote)
}

func await(t *testing.T, changed <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(soon):
		require.Fail(t, "no signal", why)
	}
}

// silent: do gives no signal. A signal may still come for an earlier change, or because etcd
// lost its leader. So do is repeated until no signal comes: a defect gives a signal each time.
func silent(t *testing.T, changed <-chan struct{}, why string, do func()) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < soon; {
		do()
		select {
		case <-changed:
		case <-time.After(quiet):
			return
		}
	}
	require.Fail(t, "a signal", why)
}
