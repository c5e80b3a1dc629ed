package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counted is a read whose answers the test gives. Each read returns its own number.
type counted struct {
	begun  atomic.Int64
	answer chan error
}

func (c *counted) read(ctx context.Context) (int64, error) {
	n := c.begun.Add(1)
	select {
	case err := <-c.answer:
		return n, err
	case <-ctx.Done():
		return n, ctx.Err()
	}
}

// Who asks while a read is in progress gets the answer of a later one, and shares that one with
// all who asked before it began. // I4, I22
func TestSharedReadBeginsAfterTheQuestion(t *testing.T) {
	t.Parallel()
	s, c := NewSharedReads(), &counted{answer: make(chan error)}
	var g sync.WaitGroup
	g.Go(func() {
		got, err := ReadShared(t.Context(), s, "checks", c.read)
		assert.NoError(t, err)
		assert.EqualValues(t, 1, got)
	})
	until(t, time.Minute, "the first read", func() bool { return c.begun.Load() == 1 })
	for range 20 {
		g.Go(func() {
			got, err := ReadShared(t.Context(), s, "checks", c.read)
			assert.NoError(t, err)
			assert.Greater(t, got, int64(1), "an answer from before the question")
		})
	}
	answered := make(chan struct{})
	go func() {
		g.Wait()
		close(answered)
	}()
	for done := false; !done; {
		select {
		case c.answer <- nil:
		case <-answered:
			done = true
		}
	}
	assert.Less(t, c.begun.Load(), int64(21), "they share")
	assert.Empty(t, s.next)
	until(t, time.Minute, "the end of the last read", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.running) == 0
	})
}

func TestSharedReadsOfOtherKeysDoNotWait(t *testing.T) {
	t.Parallel()
	s, hung := NewSharedReads(), &counted{answer: make(chan error)}
	go func() { _, _ = ReadShared(t.Context(), s, "leader a", hung.read) }()
	until(t, time.Minute, "the read that hangs", func() bool { return hung.begun.Load() == 1 })
	got, err := ReadShared(t.Context(), s, "leader b", func(context.Context) (string, error) { return "b", nil })
	require.NoError(t, err)
	assert.Equal(t, "b", got)
}

// A read that hangs keeps nobody else from the answer.
func TestSharedReadThatHangsDelaysNobodyForLong(t *testing.T) {
	t.Parallel()
	s, hung := NewSharedReads(), &counted{answer: make(chan error)}
	go func() { _, _ = ReadShared(t.Context(), s, "checks", hung.read) }()
	until(t, time.Minute, "the read that hangs", func() bool { return hung.begun.Load() == 1 })
	got, err := ReadShared(t.Context(), s, "checks", func(context.Context) (int64, error) { return 2, nil })
	require.NoError(t, err)
	assert.EqualValues(t, 2, got)
	assert.EqualValues(t, 1, hung.begun.Load(), "the first read still hangs")
}

// A read goes on while anybody waits for it, and ends with the last one.
func TestSharedReadEndsWithTheLastWhoWaits(t *testing.T) {
	t.Parallel()
	s, before, c := NewSharedReads(), &counted{answer: make(chan error)}, &counted{answer: make(chan error)}
	s.Patience = time.Hour
	ask := func(c *counted) *sharedRead {
		return s.join("checks", func(ctx context.Context) (any, error) { return c.read(ctx) })
	}
	running := ask(before)
	first, second := ask(c), ask(c)
	require.Same(t, first, second, "both asked before it began")
	assert.NotSame(t, running, first)
	before.answer <- nil
	until(t, time.Minute, "the read", func() bool { return c.begun.Load() == 1 })
	s.leave(first)
	require.NoError(t, first.ctx.Err(), "somebody still waits")
	s.leave(second)
	<-first.done
	require.ErrorIs(t, first.err, context.Canceled)
	s.leave(running)
}

// A read that everybody has given up before it began is not joined: its context has ended.
func TestSharedReadThatWasGivenUpIsNotJoined(t *testing.T) {
	t.Parallel()
	s, c := NewSharedReads(), &counted{answer: make(chan error)}
	s.Patience = time.Millisecond
	given := s.join("checks", func(ctx context.Context) (any, error) { return c.read(ctx) }) // begins at once
	until(t, time.Minute, "the first read", func() bool { return c.begun.Load() == 1 })
	waiting := s.join("checks", func(context.Context) (any, error) { return nil, errors.New("given up") })
	s.leave(waiting)
	got, err := ReadShared(t.Context(), s, "checks", func(context.Context) (int64, error) { return 7, nil })
	require.NoError(t, err)
	assert.EqualValues(t, 7, got)
	s.leave(given)
}

// Those who ask soon after a read has begun share the next one. Who asks later waits for nobody.
func TestSharedReadsBeginAWhileApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, reads := NewSharedReads(), 0
		ask := func() int {
			n, err := ReadShared(t.Context(), s, "checks", func(context.Context) (int, error) {
				reads++
				return reads, nil
			})
			assert.NoError(t, err)
			return n
		}
		began := time.Now()
		assert.Equal(t, 1, ask())
		var g sync.WaitGroup
		for range 20 {
			g.Go(func() { assert.Equal(t, 2, ask()) })
		}
		g.Wait()
		assert.Equal(t, sharedEvery, time.Since(began))
		time.Sleep(sharedEvery)
		began = time.Now()
		assert.Equal(t, 3, ask())
		assert.Zero(t, time.Since(began), "it is alone")
		time.Sleep(sharedEvery)
		synctest.Wait()
		assert.Empty(t, s.running)
	})
}

func until(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, within, 20*time.Millisecond, what)
}
