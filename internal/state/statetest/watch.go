package statetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
)

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
	own, err := open()
	require.NoError(t, err)
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
	loses(t, own, other, changed)

	cancel()
	var late uint64
	silent(t, changed, "the watch was ended", func() {
		late, err = other.Put(t.Context(), state.Record{Kind: state.KindPin, Key: "late", Version: late})
		require.NoError(t, err)
	})
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
		list, err := own.List(t.Context(), state.KindHold)
		require.NoError(t, err)
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
