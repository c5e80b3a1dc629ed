package live_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/live"
)

// What was read before a change stays as it was.
func TestMapIsReplacedAsAWhole(t *testing.T) {
	var m live.Map[int]
	require.Empty(t, m.All())
	require.Zero(t, m.Get("a"))
	m.Put("a", 1)
	before := m.All()
	m.Put("b", 2)
	m.Delete("a")
	m.Delete("never there")
	assert.Equal(t, map[string]int{"a": 1}, before)
	assert.Equal(t, map[string]int{"b": 2}, m.All())
}

// Changes at the same time do not lose one another, and whoever reads needs no lock.
func TestMapUnderManyHands(t *testing.T) {
	var m live.Map[int]
	var g sync.WaitGroup
	for i := range 50 {
		g.Go(func() { m.Put(fmt.Sprint(i), i) })
		g.Go(func() {
			for name, value := range m.All() {
				assert.Equal(t, name, fmt.Sprint(value))
			}
		})
	}
	g.Wait()
	assert.Len(t, m.All(), 50)
}

// log collects what tasks did.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *log) all() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// task is one that says when it begins and when it has ended.
func (l *log) task(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		l.add(name + " begins")
		<-ctx.Done()
		l.add(name + " ends")
		return nil
	}
}

// A task ends without the others, and one that is added later runs like those of the start.
func TestTasksBeginAndEndOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks live.Tasks
		var l log
		tasks.Begin("a", l.task("a"))
		tasks.Begin("never", l.task("never"))
		tasks.End("never")
		tasks.End("unknown")
		require.Empty(t, l.all(), "nothing begins before Run")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tasks.Run(ctx) }()
		require.Equal(t, []string{"a begins"}, l.all())
		tasks.Begin("b", l.task("b"))
		require.Equal(t, []string{"a begins", "b begins"}, l.all())
		tasks.End("a")
		require.Equal(t, []string{"a begins", "b begins", "a ends"}, l.all())
		tasks.Begin("a", l.task("a, again"))
		require.Contains(t, l.all(), "a, again begins")
		cancel()
		require.NoError(t, <-done)
		require.Subset(t, l.all(), []string{"b ends", "a, again ends"})
		n := len(l.all())
		tasks.Begin("late", l.task("late"))
		tasks.End("late")
		assert.Len(t, l.all(), n, "after Run nothing begins")
	})
}

// The error of one task ends all of them, and Run returns it.
func TestTaskThatFailsEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks live.Tasks
		var l log
		failed := errors.New("failed")
		tasks.Begin("a", l.task("a"))
		done := make(chan error, 1)
		go func() { done <- tasks.Run(t.Context()) }()
		require.Equal(t, []string{"a begins"}, l.all())
		tasks.Begin("b", func(context.Context) error { return failed })
		assert.ErrorIs(t, <-done, failed)
		assert.Equal(t, []string{"a begins", "a ends"}, l.all())
	})
}

func TestRepeatWhenDueAndWhenWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		wake, begun := make(chan struct{}, 1), time.Now()
		var at []time.Duration
		live.Repeat(ctx, wake, func() time.Time {
			switch at = append(at, time.Since(begun)); len(at) {
			case 1:
				return time.Now().Add(time.Minute)
			case 2:
				time.AfterFunc(time.Hour, func() { live.Signal(wake) })
				return time.Time{}
			}
			cancel()
			return time.Time{}
		})
		assert.Equal(t, []time.Duration{0, time.Minute, time.Hour + time.Minute}, at)
	})
}
