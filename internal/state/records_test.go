package state_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/test/must"
)

func TestClusters(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	for _, name := range []string{"prod", state.AllClusters} {
		c := must.Do(statetest.LoadCluster(ctx, s, name))(t)
		require.Equal(t, state.Cluster{Name: name}, c, "lost state is neither armed nor paused")
		c.Armed, c.ArmedBy, c.ArmedAt = true, "uid 0", noon
		c.Paused, c.PausedBy, c.PausedReason, c.PausedAt = true, "uid 1000", "network work on "+name, noon
		saved := must.Do(statetest.SaveCluster(ctx, s, c))(t)
		got := must.Do(statetest.LoadCluster(ctx, s, name))(t)
		require.Equal(t, saved, got)
	}
	list := must.Do(statetest.LoadClusters(ctx, s))(t)
	require.Len(t, list, 2)
	require.Equal(t, state.AllClusters, list[0].Name)

	must.Do(s.Put(ctx, state.Record{Kind: state.KindCluster, Key: "bad", Data: []byte(`{"v":2}`)}))(t)
	_, err := statetest.LoadCluster(ctx, s, "bad")
	require.ErrorIs(t, err, state.ErrFuture, "unreadable is not the same as never armed")
	list, err = statetest.LoadClusters(ctx, s)
	require.ErrorIs(t, err, state.ErrFuture)
	require.Len(t, list, 2)
}

// A cluster of that name would overwrite the orders for all clusters.
func TestClusterNamedLikeTheKeyOfAll(t *testing.T) {
	s := openStore(t)
	_, err := statetest.SaveCluster(t.Context(), s, state.Cluster{Name: "*"})
	require.ErrorContains(t, err, "reserved")
	c := must.Do(statetest.LoadCluster(t.Context(), s, state.AllClusters))(t)
	require.Zero(t, c.Version)
}

func TestPins(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	_, err := state.LoadPin(ctx, s, "prod/worker-3")
	require.ErrorIs(t, err, state.ErrNotFound)
	pin := state.Pin{Host: "prod/worker-3", Address: "ipmi://192.0.2.13:623", SystemUUID: "4c4c4544-0042-3510-8052-b4c04f4d3332", BMCUUID: "x", At: noon}
	saved := must.Do(state.SavePin(ctx, s, pin))(t)
	_, err = state.SavePin(ctx, s, pin)
	require.ErrorIs(t, err, state.ErrExists, "a pin is never replaced in silence") // I10
	got := must.Do(state.LoadPin(ctx, s, pin.Host))(t)
	require.Equal(t, saved, got)
	pins := must.Do(state.LoadPins(ctx, s, 0))(t)
	require.Equal(t, []state.Pin{saved}, pins)
	_, err = state.SavePin(ctx, s, state.Pin{})
	require.Error(t, err)
}

// The record of all clusters has no cluster name, so an error describes it.
func TestErrorNamesTheRecordOfAllClusters(t *testing.T) {
	s := openStore(t)
	require.NoError(t, s.Close())
	_, err := statetest.SaveCluster(t.Context(), s, state.Cluster{Name: state.AllClusters})
	require.ErrorContains(t, err, "save the record of all clusters: ")
	_, err = statetest.SaveCluster(t.Context(), s, state.Cluster{Name: "prod"})
	require.ErrorContains(t, err, `save cluster "prod": `)
}

// A quarantine and a person's hold of the same Node are two records.
func TestQuarantineStandsBesideAHold(t *testing.T) {
	s := openStore(t)
	hold := must.Do(statetest.SaveHold(t.Context(), s, state.Hold{Cluster: "prod", Node: "n", By: "ann"}))(t)
	quarantine := must.Do(statetest.SaveHold(t.Context(), s, state.Hold{Cluster: "prod", Node: "n", By: "fenced", Quarantine: true}))(t)
	all := must.Do(statetest.LoadHolds(t.Context(), s))(t)
	require.ElementsMatch(t, []state.Hold{hold, quarantine}, all)
	require.NoError(t, state.NewTable(state.Holds, func(state.Hold) {}).Delete(t.Context(), s, hold))
	all = must.Do(statetest.LoadHolds(t.Context(), s))(t)
	require.Equal(t, []state.Hold{quarantine}, all)
}

func TestFreezes(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	f := state.Freeze{RunID: "r1", Host: "prod/n", Cluster: "prod", Node: "n", Devices: "192.0.2.1", Class: "dell r650 6.10", Reason: "the Lease moved", At: noon}
	saved := must.Do(statetest.SaveFreeze(ctx, s, f))(t)
	require.True(t, saved.Active())
	saved.ReleasedBy, saved.ReleasedReason, saved.ReleasedAt = "ada", "board replaced", noon.Add(time.Hour)
	saved = must.Do(statetest.SaveFreeze(ctx, s, saved))(t)
	require.False(t, saved.Active())

	must.Do(s.Put(ctx, state.Record{Kind: state.KindFreeze, Key: "bad", Data: []byte(`{"v":1,"data":{"runID":"other"}}`)}))(t)
	list, err := statetest.LoadFreezes(ctx, s)
	require.ErrorContains(t, err, `"other"`, "one that cannot be read is never taken for none")
	require.Equal(t, []state.Freeze{saved}, list)
}

// A record that cannot be read does not stop the start of a daemon, and is overwritten.
func TestRefusalsThatCannotBeRead(t *testing.T) {
	s := openStore(t)
	saved := must.Do(state.SaveRefusedAccounts(t.Context(), s, state.RefusedAccounts{Instance: "a", Accounts: []state.RefusedAccount{{Service: "x", User: "u"}}}))(t)
	loaded := must.Do(state.LoadRefusedAccounts(t.Context(), s, "a"))(t)
	assert.Equal(t, saved, loaded)

	meta := must.Do(s.List(t.Context(), state.KindMeta))(t)
	for _, r := range meta {
		if r.Version == saved.Version {
			r.Data = []byte("?")
			must.Do(s.Put(t.Context(), r))(t)
		}
	}
	loaded = must.Do(state.LoadRefusedAccounts(t.Context(), s, "a"))(t)
	assert.Empty(t, loaded.Accounts)
	assert.NotEqual(t, saved.Version, loaded.Version)
	must.Do(state.SaveRefusedAccounts(t.Context(), s, loaded))(t)
}

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

func releasedBy(by string) func(state.Hold, bool) (state.Hold, bool) {
	return func(old state.Hold, known bool) (state.Hold, bool) {
		old.ReleasedBy = by
		return old, known
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

	saved = must.Do(one.Update(ctx, s, "c/n", releasedBy("bea")))(t)
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
	must.Do(one.Update(ctx, s, "c/n", holdBy("a")))(t)
	saved := must.Do(one.Update(ctx, s, "c/n", releasedBy("bea")))(t)
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
	assert.Equal(t, []string{"n by a", "n by a", "n by a"}, *changes, "it came, was released, and went")
}

// A freeze, a pause and a hold that is in force last although the store lacks them: keys were deleted, or an older
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
	holds := state.NewTable(state.Holds, func(state.Hold) {})
	held := must.Do(holds.Update(ctx, s, "c/n", holdBy("ada")))(t)
	require.NoError(t, s.Store.Delete(ctx, state.KindHold, "c/n", held.Version))
	require.NoError(t, holds.Load(ctx, s))
	assert.Equal(t, []state.Hold{held}, holds.All())
	held = must.Do(holds.Update(ctx, s, "c/n", releasedBy("ada")))(t)
	assert.Equal(t, "ada", held.Reason)
	require.NoError(t, s.Store.Delete(ctx, state.KindHold, "c/n", held.Version))
	require.NoError(t, holds.Load(ctx, s))
	assert.Empty(t, holds.All(), "a released one is forgotten")

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

// Whoever imports a backup does not know what fenced could do since, as whether somebody has disarmed the cluster: it begins with a quiet
// period, as without a scope on record. // I16, I18
func TestImportForgetsTheScope(t *testing.T) {
	from, to := openStore(t), openStore(t)
	c := state.Cluster{Name: "c", Armed: true, ArmedBy: "ada", Scope: state.Scope{Mode: "observe", Checks: map[string]string{"FencePolicy a": "1/2"}}}
	must.Do(statetest.SaveCluster(t.Context(), from, c))(t)
	must.Do(state.Import(t.Context(), to, bytes.NewReader(statetest.Export(t, from))))(t)
	got := must.Do(statetest.LoadClusters(t.Context(), to))(t)
	require.Len(t, got, 1)
	c.Scope, c.Version = state.Scope{}, got[0].Version
	assert.Equal(t, c, got[0])
}

func TestImportChecksFirst(t *testing.T) {
	from := openStore(t)
	statetest.Fill(t, from, 100)
	good := string(statetest.Export(t, from))
	lines := strings.SplitAfter(good, "\n")
	changed := func(change func([]string) []string) string {
		return strings.Join(change(append([]string{}, lines...)), "")
	}
	for what, content := range map[string]string{
		"empty":           "",
		"another file":    "clusters: []\n",
		"cut in a line":   good[:len(good)/2],
		"no trailer":      strings.Join(lines[:len(lines)-2], ""),
		"a line is gone":  changed(func(l []string) []string { return append(l[:2], l[3:]...) }),
		"lines swapped":   changed(func(l []string) []string { l[1], l[3] = l[3], l[1]; return l }),
		"a line twice":    changed(func(l []string) []string { l[3] = l[1]; return l }),
		"more follows":    good + lines[1],
		"a letter":        strings.Replace(good, `"key":"prod"`, `"key":"prxd"`, 1),
		"unknown kind":    strings.Replace(good, `"kind":"hold"`, `"kind":"held"`, 1),
		"unknown field":   strings.Replace(good, `{"kind":"hold"`, `{"x":1,"kind":"hold"`, 1),
		"the id":          strings.Replace(good, `"key":"more"`, `"key":"store-id"`, 1),
		"a newer schema":  strings.Replace(good, `"schema":3`, `"schema":4`, 1),
		"a newer version": strings.Replace(good, `"version":1`, `"version":2`, 1),
	} {
		require.NotEqual(t, good, content, what)
		to := openStore(t)
		_, err := state.Import(t.Context(), to, strings.NewReader(content))
		require.Error(t, err, what)
		require.Equal(t, strings.Contains(what, "newer"), errors.Is(err, state.ErrFuture), "%s: %v", what, err)
		require.Empty(t, statetest.Records(t, to), "%s: something was written", what)
	}
	_, err := state.Import(t.Context(), from, strings.NewReader(good))
	require.ErrorContains(t, err, "not empty")
	require.ErrorContains(t, err, "1 backup")
}

// failingStore fails after some writes, like a machine that loses its power.
type failingStore struct {
	state.Store
	left int
}

func (d *failingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	if d.left--; d.left < 0 {
		return 0, errors.New("the disk is gone")
	}
	return d.Store.Put(ctx, r)
}

// CheckComplete refuses a store after an interrupted import. Another import replaces it.
func TestImportInterrupted(t *testing.T) {
	from, to := openStore(t), openStore(t)
	statetest.Fill(t, from, 100)
	file := statetest.Export(t, from)
	for left := 1; left < len(statetest.Records(t, from)); left++ {
		_, err := state.Import(t.Context(), &failingStore{Store: to, left: left}, bytes.NewReader(file))
		require.ErrorContains(t, err, "the disk is gone")
		require.ErrorIs(t, state.CheckComplete(t.Context(), to), state.ErrIncompleteImport)
	}
	must.Do(state.Import(t.Context(), to, bytes.NewReader(file)))(t)
	require.NoError(t, state.CheckComplete(t.Context(), to))
	require.Equal(t, statetest.Records(t, from), statetest.Records(t, to))
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"format":"fenced-export","version":1,"schema":3,"store":"A","at":"2026-01-01T00:00:00Z"}` + "\n" +
		`{"kind":"pin","key":"h","data":"e30="}` + "\n" + `{"records":1,"sha256":"00"}` + "\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := openStore(t)
		if n, err := state.Import(t.Context(), s, bytes.NewReader(content)); err == nil {
			require.Len(t, statetest.Records(t, s), n)
		} else {
			require.Empty(t, statetest.Records(t, s))
		}
	})
}
