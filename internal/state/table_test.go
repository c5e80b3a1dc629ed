package state_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/test/must"
)

// putHook is a store that calls before just before a write.
type putHook struct {
	state.Store
	before func()
	fail   error // the error that replaces the answer to the next write
}

func (s *putHook) Put(ctx context.Context, r state.Record) (uint64, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	v, err := s.Store.Put(ctx, r)
	if s.fail != nil {
		err, s.fail = s.fail, nil
	}
	return v, err
}

func openTable(t *testing.T) (s *putHook, one, two *state.Table[state.Hold], changes *[]string) {
	t.Helper()
	bolt := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	t.Cleanup(func() { require.NoError(t, bolt.Close()) })
	changes = &[]string{}
	one = state.NewTable(state.Holds, func(h state.Hold) { *changes = append(*changes, h.Node+" by "+h.By) })
	return &putHook{Store: bolt}, one, state.NewTable(state.Holds, func(state.Hold) {}), changes
}

func holdBy(by string) func(state.Hold, bool) (state.Hold, bool) {
	return func(old state.Hold, _ bool) (state.Hold, bool) {
		old.Cluster, old.Node, old.By, old.Reason = "c", "n", by, old.Reason+by
		return old, true
	}
}

// An update is based on what another instance has written in the meantime, and on an earlier
// write of this instance whose answer was lost.
func TestTableUpdate(t *testing.T) {
	s, one, two, changes := openTable(t)
	ctx := t.Context()
	must.Do(one.Update(ctx, s, "c/n", holdBy("a")))(t)
	s.before = func() {
		require.NoError(t, two.Load(ctx, s.Store))
		must.Do(two.Update(ctx, s.Store, "c/n", holdBy("b")))(t)
	}
	saved := must.Do(one.Update(ctx, s, "c/n", holdBy("c")))(t)
	assert.Equal(t, "abc", saved.Reason)
	assert.Equal(t, []string{"n by a", "n by b", "n by c"}, *changes)

	lost := errors.New("no answer")
	s.fail = lost
	_, err := one.Update(ctx, s, "c/n", holdBy("d"))
	require.ErrorIs(t, err, lost)
	known, _ := one.Get("c/n")
	assert.Equal(t, "abc", known.Reason, "what the store did not confirm is not shown")
	saved = must.Do(one.Update(ctx, s, "c/n", holdBy("e")))(t)
	assert.Equal(t, "abcde", saved.Reason)

	s.before = func() { require.NoError(t, one.Delete(ctx, s.Store, saved)) }
	saved = must.Do(one.Update(ctx, s, "c/n", holdBy("f")))(t)
	assert.Equal(t, "f", saved.Reason, "it was gone")
}

// If there is nothing to store, nothing is stored and changed is not called.
func TestTableUpdateOfNothing(t *testing.T) {
	s, one, _, changes := openTable(t)
	s.before = func() { t.Error("written") }
	must.Do(one.Update(t.Context(), s, "c/n", func(h state.Hold, known bool) (state.Hold, bool) { return h, known }))(t)
	assert.Empty(t, one.All())
	assert.Empty(t, *changes)
}

// Load removes a record that the store no longer has. It keeps all records if one cannot be
// read.
func TestTableLoad(t *testing.T) {
	s, one, two, changes := openTable(t)
	ctx := t.Context()
	saved := must.Do(one.Update(ctx, s, "c/n", holdBy("a")))(t)
	require.NoError(t, two.Load(ctx, s))
	assert.Equal(t, one.All(), two.All())
	bad := must.Do(s.Store.Put(ctx, state.Record{Kind: state.KindHold, Key: "c/bad", Data: []byte("{}")}))(t)
	require.NoError(t, two.Delete(ctx, s, saved))
	require.ErrorIs(t, two.Delete(ctx, s, state.Hold{Cluster: "c", Node: "bad"}), state.ErrConflict)
	require.NoError(t, two.Delete(ctx, s, saved), "it is gone already")
	require.ErrorIs(t, one.Load(ctx, s), state.ErrUnreadable)
	assert.Len(t, one.All(), 1, "it could be the one that cannot be read")
	require.NoError(t, s.Store.Delete(ctx, state.KindHold, "c/bad", bad))
	require.NoError(t, one.Load(ctx, s))
	assert.Empty(t, one.All())
	assert.Equal(t, []string{"n by a", "n by a"}, *changes, "it came, and went")
}

// A freeze and a pause last although the store lacks them: keys were deleted, or an older
// backup was restored. A later change stores them anew. // I5, I23
func TestTableKeepsWhatLasts(t *testing.T) {
	s, _, _, _ := openTable(t)
	ctx := t.Context()
	freezes := state.NewTable(state.Freezes, func(state.Freeze) {})
	clusters := state.NewTable(state.Clusters, func(state.Cluster) {})
	frozen := must.Do(freezes.Update(ctx, s, "r1", func(state.Freeze, bool) (state.Freeze, bool) {
		return state.Freeze{RunID: "r1", Host: "c/n", Node: "n", Cluster: "c"}, true
	}))(t)
	paused := must.Do(clusters.Update(ctx, s, "c", func(state.Cluster, bool) (state.Cluster, bool) {
		return state.Cluster{Name: "c", Paused: true, PausedBy: "ada"}, true
	}))(t)
	require.NoError(t, s.Store.Delete(ctx, state.KindFreeze, "r1", frozen.Version))
	require.NoError(t, s.Store.Delete(ctx, state.KindCluster, "c", paused.Version))
	require.NoError(t, freezes.Load(ctx, s))
	require.NoError(t, clusters.Load(ctx, s))
	assert.Equal(t, []state.Freeze{frozen}, freezes.All())
	assert.Equal(t, []state.Cluster{paused}, clusters.All())

	released := must.Do(freezes.Update(ctx, s, "r1", func(f state.Freeze, known bool) (state.Freeze, bool) {
		f.ReleasedBy = "ada"
		return f, known
	}))(t)
	assert.Equal(t, "c/n", released.Host)
	require.NoError(t, s.Store.Delete(ctx, state.KindFreeze, "r1", released.Version))
	require.NoError(t, freezes.Load(ctx, s))
	assert.Empty(t, freezes.All(), "a released one is forgotten")
}

// After an older backup was restored the stored record has a lower version than the cached
// one. A change goes on from the stored one.
func TestTableUpdateAfterARestore(t *testing.T) {
	s, _, _, _ := openTable(t)
	ctx := t.Context()
	older := openOlder(t)
	clusters := state.NewTable(state.Clusters, func(state.Cluster) {})
	arm := func(c state.Cluster, _ bool) (state.Cluster, bool) {
		c.Name, c.Armed = "c", !c.Armed
		return c, true
	}
	for range 3 {
		must.Do(clusters.Update(ctx, s, "c", arm))(t)
	}
	stored := must.Do(statetest.SaveCluster(ctx, older, state.Cluster{Name: "c", PausedBy: "bea", Paused: true}))(t)
	known, _ := clusters.Get("c")
	require.Less(t, stored.Version, known.Version)
	saved := must.Do(clusters.Update(ctx, older, "c", arm))(t)
	assert.True(t, saved.Paused, "what is stored counts")
	assert.True(t, saved.Armed)
}

func openOlder(t *testing.T) state.Store {
	t.Helper()
	s := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "older.db")))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
