package state

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/test/rig"
)

// lostAnswer is a store in which a write can be carried out although its caller hears
// nothing of it.
func lostAnswer(t *testing.T) *etcdStore {
	if testing.Short() {
		t.Skip("needs an etcd, which -short leaves out")
	}
	c, err := rig.StartEtcd(t.Context(), rig.EtcdOptions{Members: 1, Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(c.Stop)
	s, err := openEtcd(t.Context(), EtcdConfig{Endpoints: c.Endpoints(), Prefix: "/l/", DialTimeout: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// carryOut does a write as etcd does when its answer is lost.
func (s *etcdStore) carryOut(t *testing.T, kind Kind, version uint64, data string) write {
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
	s := lostAnswer(t)
	put := func(kind Kind, version uint64, data string) (uint64, error) {
		return s.Put(t.Context(), Record{Kind: kind, Key: "k", Version: version, Data: []byte(data)})
	}
	read := func(kind Kind) Record {
		r, err := s.Get(t.Context(), kind, "k")
		require.NoError(t, err)
		return r
	}

	// The same write again finds itself.
	w := s.carryOut(t, KindRun, 0, "one")
	v, err := s.write(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, read(KindRun).Version, v)

	// A worker that was told of no success goes on from the version he has.
	for range 2 {
		w = s.carryOut(t, KindRun, v, "unheard of")
		s.doubts.add(w)
		v, err = put(KindRun, v, "next")
		require.NoError(t, err)
		require.Equal(t, "next", string(read(KindRun).Data))
	}
	// But not over what another wrote since.
	s.doubts.add(s.carryOut(t, KindRun, v, "unheard of"))
	s.carryOut(t, KindRun, read(KindRun).Version, "by another")
	_, err = put(KindRun, v, "over it")
	require.ErrorIs(t, err, ErrConflict)
	require.Equal(t, "by another", string(read(KindRun).Data))

	// Nor where a record has several writers, or is created.
	s.doubts.add(s.carryOut(t, KindSlot, 0, "of a"))
	_, err = put(KindSlot, 0, "of b")
	require.ErrorIs(t, err, ErrExists)
	held := read(KindSlot).Version
	s.doubts.add(s.carryOut(t, KindSlot, held, "of a still"))
	_, err = put(KindSlot, held, "of b")
	require.ErrorIs(t, err, ErrConflict)
}
