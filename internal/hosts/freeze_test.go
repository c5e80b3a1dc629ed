package hosts

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/wire"
)

// heldFor is a run that is Held because a BMC reported a false Off.
func heldFor(id, node string) remediate.Run {
	return remediate.Run{ID: id, Step: remediate.Held, Reason: reason.FalseOff, Target: remediate.Target{
		Cluster: "c", Node: node, Host: "c/" + node, Devices: "bmc-" + node}}
}

func openFreezes(t *testing.T, runs ...remediate.Run) (*Freezes, state.Store) {
	t.Helper()
	s, err := boltstore.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	f := readFreezes(t, s)
	require.NoError(t, f.Complete(t.Context(), s, runs))
	return f, s
}

func readFreezes(t *testing.T, s state.Store) *Freezes {
	t.Helper()
	f := newFreezes(func(string) string { return "" })
	require.NoError(t, f.Load(t.Context(), s))
	return f
}

// A freeze is about one host, under each of its names, and about no other host.
func TestFreezeIsAboutOneHost(t *testing.T) {
	f, _ := openFreezes(t, heldFor("r1", "n-1"), remediate.Run{ID: "r2", Step: remediate.Held, Reason: "OperatorOff", Target: remediate.Target{Node: "n-9"}})
	for name, c := range map[string]struct {
		t      remediate.Target
		frozen bool
	}{
		"the same":                              {remediate.Target{Cluster: "c", Node: "n-1"}, true},
		"by its host":                           {remediate.Target{Cluster: "c", Node: "renamed", Host: "c/n-1"}, true},
		"by its BMC":                            {remediate.Target{Cluster: "d", Node: "x", Devices: "pdu 7\nbmc-n-1"}, true},
		"another":                               {remediate.Target{Cluster: "c", Node: "n-2", Host: "c/n-2", Devices: "bmc-n-2"}, false},
		"of that name, elsewhere":               {remediate.Target{Cluster: "d", Node: "n-1", Host: "d/n-1", Devices: "bmc-d"}, false},
		"a run that is Held for another reason": {remediate.Target{Cluster: "c", Node: "n-9"}, false},
	} {
		code, why := f.on(c.t, "")
		assert.Equal(t, c.frozen, why != "", name)
		assert.Equal(t, c.frozen, code == reason.Frozen, name)
	}
}

// A class is frozen when two of its hosts are: a false Off of outlets says nothing about the BMC's
// model, and a host with two freezes is one host. // I5
func TestFreezeOfAClassNeedsTwoHosts(t *testing.T) {
	f, s := openFreezes(t)
	add := func(id, node string, offLevel int, class string) {
		r := heldFor(id, node)
		r.OffLevel = offLevel
		require.NoError(t, f.add(t.Context(), s, r, class))
	}
	frozen := func(class string) bool {
		_, why := f.on(remediate.Target{Cluster: "c", Node: "new"}, class)
		return why != ""
	}
	add("r1", "a", 0, "m 1")
	add("r2", "a", 0, "m 1")
	add("r3", "b", 1, "m 1")
	add("r4", "c", 0, "")
	add("r5", "d", 0, "")
	assert.False(t, frozen("m 1"))
	assert.False(t, frozen(""), "hosts without a known model are no class")
	add("r6", "e", 0, "m 1")
	assert.True(t, frozen("m 1"))
	assert.False(t, frozen("m 2"))

	assert.Equal(t, f.table.All(), readFreezes(t, s).table.All())
	_, err := f.release(t.Context(), s, wire.Order{Node: "e", Actor: "ada"}, remediate.Target{Cluster: "c", Node: "e"})
	require.NoError(t, err)
	assert.False(t, frozen("m 1"))
}

// unpruned is a store that does not answer deletions.
type unpruned struct {
	state.Store
	asked int
}

func (s *unpruned) Delete(context.Context, state.Kind, string, uint64) error {
	s.asked++
	return context.DeadlineExceeded
}

// A released freeze is deleted with its run; an active one is kept for ever.
func TestReleasedFreezesArePruned(t *testing.T) {
	f, s := openFreezes(t, heldFor("r1", "a"), heldFor("r2", "b"), heldFor("r3", "c"))
	for _, node := range []string{"a", "b"} {
		_, err := f.release(t.Context(), s, wire.Order{Node: node, Actor: "ada"}, remediate.Target{Cluster: "c", Node: node})
		require.NoError(t, err)
	}
	silent := &unpruned{Store: s}
	require.ErrorIs(t, f.Prune(t.Context(), silent, func(string) bool { return false }), context.DeadlineExceeded)
	assert.Equal(t, 1, silent.asked, "a freeze must not wait for more than one")
	assert.Len(t, f.table.All(), 3)
	require.NoError(t, f.Prune(t.Context(), s, func(run string) bool { return run == "r2" }))
	again := readFreezes(t, s)
	assert.Len(t, again.table.All(), 2)
	_, known := again.table.Get("r1")
	assert.False(t, known)
}

// unanswered is a store that does one write without answering it.
type unanswered struct {
	state.Store
	lose bool
}

func (u *unanswered) Put(ctx context.Context, r state.Record) (uint64, error) {
	version, err := u.Store.Put(ctx, r)
	if u.lose && err == nil {
		u.lose = false
		return 0, errors.New("the store did not answer")
	}
	return version, err
}

// If the store makes a freeze, or releases one, and does not answer, the next attempt
// succeeds. // I5, L1
func TestFreezeStoredWithoutAnAnswerCounts(t *testing.T) {
	f, inner := openFreezes(t)
	s, r, o := &unanswered{inner, true}, heldFor("r1", "n-1"), wire.Order{Node: "n-1", Actor: "ada", Reason: "board replaced"}
	require.Error(t, f.add(t.Context(), s, r, ""))
	require.NoError(t, f.add(t.Context(), s, r, ""))
	require.True(t, first(f.table.Get("r1")).Active())
	s.lose = true
	_, err := f.release(t.Context(), s, o, remediate.Target{Cluster: "c", Node: o.Node})
	require.Error(t, err)
	released, err := f.release(t.Context(), s, o, remediate.Target{Cluster: "c", Node: o.Node})
	require.NoError(t, err)
	require.Len(t, released, 1)
	require.False(t, first(f.table.Get("r1")).Active())
	assert.Equal(t, f.table.All(), readFreezes(t, inner).table.All())
}

func first(f state.Freeze, _ bool) state.Freeze { return f }
