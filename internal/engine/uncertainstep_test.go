package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// silentStore stores one record of a run in that step and does not say so.
type silentStore struct {
	state.Store
	step remediate.Step
	done atomic.Bool
}

func (s *silentStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	version, err := s.Store.Put(ctx, r)
	if err != nil || r.Kind != state.KindRun || s.done.Load() {
		return version, err
	}
	if run, err := state.GetRun(ctx, s.Store, r.Key); err != nil || run.Step != s.step {
		return version, err
	}
	s.done.Store(true)
	return 0, errors.New("no answer")
}

// A step that was stored without an answer is still reported, and an end that was stored
// so frees the host: otherwise it would stay under remediation for ever.
func TestSaveWithoutAnAnswerIsReported(t *testing.T) {
	for _, step := range []remediate.Step{remediate.DeleteNode, remediate.PowerOn, remediate.AwaitNode, remediate.RestoreNode, remediate.Done} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			e, events, stop := start(t, w, &silentStore{Store: store, step: step}, nil)
			time.Sleep(10 * time.Minute)
			runs := e.Runs("c")
			stop()
			require.Len(t, runs, 1)
			assert.Equal(t, remediate.Done, runs[0].Step, "no answer to %s", step)
			told := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Stepped && ev.Step == step })
			assert.Len(t, told, 1, "events of %s", step)
		})
	}
}
