package main

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/event"
)

// When many runs start together, more garbage may lie about until a while after the last of them.
func TestMoreGarbageWhileManyRunsStart(t *testing.T) {
	t.Setenv("GOGC", "")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all []int
		set := func() []int {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		g := newGarbage()
		g.set, g.live = func(percent int) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, percent)
		}, func() uint64 { return 2 * moreGarbage }
		full := errors.New("the disk is full")
		record := g.record(func(event.Event) error { return full })
		start := func(n int, apart time.Duration) {
			for range n {
				require.ErrorIs(t, record(event.Event{Type: event.Stepped}), full)
				require.ErrorIs(t, record(event.Event{Type: event.Started}), full)
				time.Sleep(apart)
			}
			synctest.Wait()
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.keep(ctx) }()

		start(manyStarts-1, 0)
		assert.Empty(t, set(), "few")
		time.Sleep(2 * manyWithin)
		start(3*manyStarts, manyWithin)
		assert.Empty(t, set(), "one after another")
		start(100, time.Millisecond)
		assert.Equal(t, []int{100}, set())
		time.Sleep(moreFor - time.Second)
		synctest.Wait()
		start(manyStarts, 0)
		time.Sleep(moreFor - time.Second)
		synctest.Wait()
		assert.Len(t, set(), 1, "others have started since")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, []int{100, gcPercent}, set())
		stop()
		require.NoError(t, <-done)
	})
}

func TestGOGCOverrulesTheDaemon(t *testing.T) {
	t.Setenv("GOGC", "75")
	require.NoError(t, newGarbage().keep(t.Context()), "it sets nothing")
}

// The garbage is bounded in bytes in a large cluster, and by what is live in a small one.
func TestPercentFor(t *testing.T) {
	assert.Equal(t, 100, percentFor(0))
	assert.Equal(t, 100, percentFor(moreGarbage))
	assert.Equal(t, gcPercent+25, percentFor(4*moreGarbage))
	assert.Equal(t, gcPercent+1, percentFor(100*moreGarbage))
	debug.FreeOSMemory() // collects
	assert.Positive(t, liveHeap())
}
