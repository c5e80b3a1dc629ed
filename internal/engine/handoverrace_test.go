package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// slowAnswers is a store that refuses the record that a person gives up, and whose next list of records
// comes late.
type slowAnswers struct {
	state.Store
	refuses, late atomic.Bool
}

func (s *slowAnswers) Put(ctx context.Context, r state.Record) (uint64, error) {
	if r.Kind == state.KindMeta && strings.Contains(string(r.Data), "givenUp") && s.refuses.Load() {
		s.late.Store(true)
		return 0, errors.New("no answer")
	}
	return s.Store.Put(ctx, r)
}

func (s *slowAnswers) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	list, err := s.Store.List(ctx, kind)
	if kind == state.KindMeta && s.late.CompareAndSwap(true, false) {
		time.Sleep(30 * time.Second)
	}
	return list, err
}

// What is read again after an order that failed is never older than what is written meanwhile: fenced
// forgets no object that it makes. // I19, I22
func TestRecordMadeWhileAnotherIsReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		slow := &slowAnswers{Store: store}
		change := handingOver(w)
		e, _, stop := start(t, w, slow, change)
		awaitAsked(t, w, "one is asked", func() bool { return len(others(w)) == 1 })
		answer(w, "True")
		time.Sleep(time.Minute)
		first := askedRecord(t, store).ID
		w.setContested(remediate.Yes)
		w.setOthersDown(true)
		time.Sleep(5 * time.Minute)
		require.Len(t, others(w), 1)
		slow.refuses.Store(true)
		done := make(chan error)
		go func() { _, err := e.Abort(t.Context(), giveUp(first, true)); done <- err }()
		w.setContested(remediate.No)
		assert.Error(t, <-done)
		for range 600 {
			if len(others(w)) == 2 {
				break
			}
			time.Sleep(time.Second)
		}
		require.Len(t, others(w), 2)
		answer(w, "False")
		w.Recover()
		w.setOthersDown(false)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, others(w), "both are looked after")
		stop()
	})
}
