package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// spoilAsked stores a record of what another remediator was asked that cannot be read.
func spoilAsked(t *testing.T, store state.Store, key string) {
	t.Helper()
	_, err := store.Put(t.Context(), state.Record{Kind: state.KindMeta, Key: key, Data: []byte("{")})
	require.NoError(t, err)
}

// Nobody acts on the target of a record that cannot be read, and it is told; everything else is
// fenced as before. // I20, I22
func TestRecordThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		key    string
		fenced bool
	}{
		"of the Node":                  {"asked c 9 n-1 - -", false},
		"of the Machine":               {"asked c 9 - ns m-1", false},
		"of another target":            {"asked c 9 other-0 ns other-0", true},
		"of another cluster":           {"asked d 9 n-1 ns m-1", true},
		"of nobody knows which target": {"asked 9", true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				spoilAsked(t, store, c.key)
				e, events, stop := start(t, w, store, nil)
				time.Sleep(20 * time.Minute)
				assert.Equal(t, 1, heard(t, events, "what other remediators were asked cannot be read"))
				if c.fenced {
					assert.Equal(t, remediate.Done, only(t, e).Step)
				} else {
					assert.Empty(t, w.Commands())
					assert.Contains(t, gate(t, e, reason.UnderRemediation).Value, "record 9 asks for, which cannot be read")
					assert.Equal(t, 1, heard(t, events, "fencectl abort 9 --as-is"))
				}
				stop()
			})
		})
	}
}

// noMeta is a store that cannot list what other remediators were asked while it is told to.
type noMeta struct {
	*failingStore
	down *atomic.Bool
}

func (s noMeta) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if kind == state.KindMeta && s.down.Load() {
		return nil, errors.New("no answer")
	}
	return s.failingStore.List(ctx, kind)
}

// A standby knows the runs of the owner, also while it cannot read what other remediators were
// asked.
func TestStandbyFollowsRunsWithoutRecords(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		down := &atomic.Bool{}
		e, _, stop := start(t, w, noMeta{store, down}, func(o *engine.Options) { o.Instance, o.Owners = "a", newDeed().heir("a", store) })
		down.Store(true)
		_, err := state.SaveRun(t.Context(), store, remediate.Run{ID: "r-1", Step: remediate.Held, Target: remediate.Target{Cluster: "c", Node: "n-1"}})
		require.NoError(t, err)
		store.syncChanges()
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}
