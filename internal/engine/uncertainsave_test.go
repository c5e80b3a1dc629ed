package engine_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// muteStore stores records of a kind, runs by default, and does not say so, as long as
// it is told to.
type muteStore struct {
	state.Store
	mu   sync.Mutex
	kind state.Kind
	mute int // that many writes
	deaf bool
}

func (s *muteStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	s.mu.Lock()
	deaf, mute := s.deaf, r.Kind == cmp.Or(s.kind, state.KindRun) && s.mute > 0
	if mute {
		s.mute--
	}
	s.mu.Unlock()
	if deaf {
		return 0, errors.New("no answer")
	}
	version, err := s.Store.Put(ctx, r)
	if err == nil && mute {
		return 0, errors.New("no answer")
	}
	return version, err
}

// I19: a run that was stored without an answer never exists beside a later one.
func TestFirstSaveWithoutAnAnswerLeavesNoRunBehind(t *testing.T) {
	for _, lost := range []int{1, 2, 3} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			mute := &muteStore{Store: store, mute: lost}
			e, _, stop := start(t, w, mute, nil)
			time.Sleep(10 * time.Minute)
			stop()
			runs, err := state.LoadRuns(t.Context(), store)
			require.NoError(t, err)
			require.Len(t, runs, 2)
			assert.Equal(t, remediate.Aborted, runs[0].Step, "%d answers lost", lost)
			assert.Equal(t, "NotSaved", string(runs[0].Reason))
			assert.Equal(t, remediate.Done, runs[1].Step)
			assert.False(t, runs[1].Started.Before(runs[0].Ended), "one after the other")
			assert.Len(t, e.Runs("c"), 2)
			assert.Equal(t, 1, w.Count(bmc.CommandOff))
		})
	}
}

// While it is not known whether the run is stored, it stays reserved.
func TestUncertainFirstSaveKeepsItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		mute := &muteStore{Store: store, mute: 1}
		e, _, stop := start(t, w, mute, nil)
		for len(e.Runs("c")) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		mute.mu.Lock()
		mute.deaf = true
		mute.mu.Unlock()
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		assert.Zero(t, w.Count(bmc.CommandOff))
		stop()
	})
}

// A run that may be in the store, in a cluster that another instance owns by now, is
// reported: it may continue there.
func TestUncertainFirstSaveOfAnotherOwnerIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		mute := &muteStore{Store: store.Store, mute: 1}
		p := newPair(t, w, &failingStore{Store: mute}, nil)
		p.give("a")
		for len(p.engine["a"].Runs("c")) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		mute.mu.Lock()
		mute.deaf = true
		mute.mu.Unlock()
		time.Sleep(3 * time.Second)
		p.give("b")
		time.Sleep(3 * time.Second)
		assert.Contains(t, strings.Join(p.told(t, "a", event.Failed), "\n"), "another instance may find it open and continue it")
		p.end()
	})
}
