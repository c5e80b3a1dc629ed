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
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/test/must"
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
	assert.Equal(t, "b", must.Do(ReadShared(t.Context(), s, "leader b", func(context.Context) (string, error) { return "b", nil }))(t))
}

// A read that hangs keeps nobody else from the answer.
func TestSharedReadThatHangsDelaysNobodyForLong(t *testing.T) {
	t.Parallel()
	s, hung := NewSharedReads(), &counted{answer: make(chan error)}
	go func() { _, _ = ReadShared(t.Context(), s, "checks", hung.read) }()
	until(t, time.Minute, "the read that hangs", func() bool { return hung.begun.Load() == 1 })
	got := must.Do(ReadShared(t.Context(), s, "checks", func(context.Context) (int64, error) { return 2, nil }))(t)
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
	got := must.Do(ReadShared(t.Context(), s, "checks", func(context.Context) (int64, error) { return 7, nil }))(t)
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

// leaseAt is a Lease in one version; a zero renewal or duration is not written.
func leaseAt(version, holder string, renewed time.Time, seconds int32) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "leader", UID: "u", ResourceVersion: version}}
	l.Spec.HolderIdentity = &holder
	if !renewed.IsZero() {
		l.Spec.RenewTime = &metav1.MicroTime{Time: renewed}
	}
	if seconds != 0 {
		l.Spec.LeaseDurationSeconds = &seconds
	}
	return l
}

// A Lease that is read for the first time is held as the times in it say, and never for longer than
// the cap. // I22
func TestLeaderLease(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		holder  string
		renewed time.Time
		seconds int32
		held    time.Duration
	}{
		"stepped down":                  {"", now, 15, 0},
		"alive":                         {"capbm-7", now.Add(-14 * time.Second), 15, time.Second},
		"expired":                       {"capbm-7", now.Add(-15 * time.Second), 15, 0},
		"without a time":                {"capbm-7", time.Time{}, 15, 15 * time.Second},
		"without a duration":            {"capbm-7", now, 0, LongestLeadership},
		"a negative duration":           {"capbm-7", now, -1, LongestLeadership},
		"68 years":                      {"nobody", now, 1<<31 - 1, LongestLeadership},
		"renewed in the year 2999":      {"nobody", now.AddDate(973, 0, 0), 15, 15 * time.Second},
		"2999, and for 68 years":        {"nobody", now.AddDate(973, 0, 0), 1<<31 - 1, LongestLeadership},
		"expired before the year 1":     {"nobody", time.Time{}.Add(1), 15, 0},
		"68 years, renewed an hour ago": {"nobody", now.Add(-time.Hour), 1<<31 - 1, 0},
	} {
		clock := NewLeaseClock()
		who, until := clock.HeldUntil(leaseAt("1", c.holder, c.renewed, c.seconds), LongestLeadership, now, now)
		assert.Equal(t, c.held > 0, who != "", name)
		if c.held > 0 {
			assert.Equal(t, now.Add(c.held), until, name)
			who, _ = clock.HeldUntil(leaseAt("1", c.holder, c.renewed, c.seconds), LongestLeadership, now.Add(c.held), now.Add(c.held))
			assert.Empty(t, who, "%s: unchanged for its time", name)
		}
	}
}

// A holder whose clock is hours behind holds its Lease while it renews it. Somebody who writes an old time into it does
// not. // I22
func TestLeaderWithAWrongClockIsAlive(t *testing.T) {
	clock, now := NewLeaseClock(), time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	held := func(version string, renewed, at time.Time) bool {
		who, _ := clock.HeldUntil(leaseAt(version, "capi-1", renewed, 15), LongestLeadership, at, at)
		return who != ""
	}
	behind := func(at time.Time) time.Time { return at.Add(-3 * time.Hour) }
	assert.False(t, held("1", behind(now), now), "the first observation")
	later := now.Add(10 * time.Second)
	assert.True(t, held("2", behind(later), later), "it changed within its duration")
	assert.True(t, held("2", behind(later), later.Add(14*time.Second)))
	assert.False(t, held("2", behind(later), later.Add(15*time.Second)), "and stands still since")
	assert.False(t, held("3", behind(now), later.Add(16*time.Second)), "no leader goes back in time")
	hour := later.Add(time.Hour)
	assert.False(t, held("4", behind(hour), hour), "the version before was read long ago")
}
