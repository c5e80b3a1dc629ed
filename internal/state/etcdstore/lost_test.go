package etcdstore

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/test/rig"

	"github.com/fenced/fenced/internal/state"
)

// lostAnswer returns a store with an etcd of its own, for tests of answers that are lost.
func lostAnswer(t *testing.T) (*store, *rig.EtcdCluster) {
	if testing.Short() {
		t.Skip("needs an etcd, which -short leaves out")
	}
	c, err := rig.StartEtcd(t.Context(), rig.EtcdOptions{Members: 1, Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(c.Stop)
	s, err := openEtcd(t.Context(), Config{Endpoints: c.Endpoints(), Prefix: "/l/", DialTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s, c
}

// carryOut makes a write as etcd does if the answer is lost.
func (s *store) carryOut(t *testing.T, kind state.Kind, version uint64, data string) write {
	n, err := s.newNonce()
	require.NoError(t, err)
	value, _ := pack(n, []byte(data))
	w := write{kind: kind, key: s.kindPrefix(kind) + "k", version: version, nonce: n}
	w.ops = []clientv3.Op{clientv3.OpPut(w.key, string(value))}
	resp, err := s.commit(t.Context(), w, version)
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
	return w
}

func TestAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	s, _ := lostAnswer(t)
	put := func(kind state.Kind, version uint64, data string) (uint64, error) {
		return s.Put(t.Context(), state.Record{Kind: kind, Key: "k", Version: version, Data: []byte(data)})
	}
	read := func(kind state.Kind) state.Record {
		r, err := s.Get(t.Context(), kind, "k")
		require.NoError(t, err)
		return r
	}

	// A repeated write finds that it was carried out.
	w := s.carryOut(t, state.KindRun, 0, "one")
	v, err := s.write(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, read(state.KindRun).Version, v)

	// A worker that got no answer continues from the version that it has.
	for range 2 {
		w = s.carryOut(t, state.KindRun, v, "unheard of")
		s.uncertain.add(w)
		v, err = put(state.KindRun, v, "next")
		require.NoError(t, err)
		require.Equal(t, "next", string(read(state.KindRun).Data))
	}
	// It does not overwrite a later write of another instance.
	s.uncertain.add(s.carryOut(t, state.KindRun, v, "unheard of"))
	s.carryOut(t, state.KindRun, read(state.KindRun).Version, "by another")
	_, err = put(state.KindRun, v, "over it")
	require.ErrorIs(t, err, state.ErrConflict)
	require.Equal(t, "by another", string(read(state.KindRun).Data))

	// This is not done for a record with several writers, nor for one that is created.
	s.uncertain.add(s.carryOut(t, state.KindSlot, 0, "of a"))
	_, err = put(state.KindSlot, 0, "of b")
	require.ErrorIs(t, err, state.ErrExists)
	held := read(state.KindSlot).Version
	s.uncertain.add(s.carryOut(t, state.KindSlot, held, "of a still"))
	_, err = put(state.KindSlot, held, "of b")
	require.ErrorIs(t, err, state.ErrConflict)
}

// A write without an answer gives a signal like a write of another user. So does, for a while,
// every own write: it may be the one without an answer.
func TestWatchTellsOfWritesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s, c := lostAnswer(t)
	changed := s.Watch(t.Context())
	signalled := func(within time.Duration) bool {
		select {
		case <-changed:
			return true
		case <-time.After(within):
			return false
		}
	}
	put := func(ctx context.Context, key string) error {
		_, err := s.Put(ctx, state.Record{Kind: state.KindPin, Key: key})
		return err
	}
	const soon, quiet = time.Minute, 300 * time.Millisecond
	silent := func(key string) bool { // an election also gives a signal, but not each time
		for begun := time.Now(); time.Since(begun) < soon; {
			require.NoError(t, put(t.Context(), key+time.Now().String()))
			if !signalled(quiet) {
				return true
			}
		}
		return false
	}
	require.True(t, signalled(soon), "the watch stands")
	require.True(t, silent("before"), "our own write gives no signal")

	require.NoError(t, c.Freeze(0)) // from here on no signal comes from etcd
	begun := time.Now()
	brief, cancel := context.WithTimeout(t.Context(), quiet)
	defer cancel()
	require.ErrorIs(t, put(brief, "unheard of"), context.DeadlineExceeded)
	require.True(t, signalled(soon), "nobody knows what is stored")
	require.NoError(t, c.Thaw(0))

	require.NoError(t, put(t.Context(), "after"))
	for signalled(time.Second) { // that write, and the one without an answer
	}
	require.NoError(t, put(t.Context(), "sure of nothing"))
	require.True(t, signalled(soon), "it may be the one without an answer")

	s.watchers.mu.Lock()
	until := s.watchers.uncertainUntil
	s.watchers.uncertainUntil = time.Now()
	s.watchers.mu.Unlock()
	assert.False(t, until.Before(begun.Add(uncertainFor)))
	assert.True(t, until.Before(time.Now().Add(uncertainFor)))
	require.True(t, silent("sure again"), "our own write gives no signal")
}
