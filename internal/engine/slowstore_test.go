package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

const (
	etcdPatience = 6 * time.Second // of the etcd engine, with one call
	// watchdogTime is systemd's: a daemon that gives no beat for so long is killed.
	watchdogTime = 30 * time.Second
)

// slowStore takes its time for each call, or gives up on all of them after a while.
type slowStore struct {
	state.Store
	mu      sync.Mutex
	delay   time.Duration
	blocked bool
}

func (s *slowStore) set(delay time.Duration, blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay, s.blocked = delay, blocked
}

func (s *slowStore) wait(ctx context.Context) error {
	s.mu.Lock()
	delay, blocked := s.delay, s.blocked
	s.mu.Unlock()
	if blocked {
		delay = etcdPatience
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delay):
	}
	if blocked {
		return errors.New("no answer within 6s")
	}
	return nil
}

func (s *slowStore) Get(ctx context.Context, kind state.Kind, key string) (state.Record, error) {
	if err := s.wait(ctx); err != nil {
		return state.Record{}, err
	}
	return s.Store.Get(ctx, kind, key)
}

func (s *slowStore) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, kind)
}

func (s *slowStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	return s.Store.Put(ctx, r)
}

func (s *slowStore) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Store.Delete(ctx, kind, key, version)
}

// pulse remembers the longest time without a beat.
type pulse struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.last.IsZero() {
		p.longest = max(p.longest, now.Sub(p.last))
	}
	p.last = now
}

func (p *pulse) requireAlive(t *testing.T) {
	t.Helper()
	require.Less(t, p.silence(), watchdogTime, "the longest time without a beat")
}

// silence is the longest time without a beat, until now.
func (p *pulse) silence() time.Duration {
	p.beat()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.longest
}

// A store that answers late delays a run, and has no other effect.
func TestSlowStoreSlowsARun(t *testing.T) {
	for _, delay := range []time.Duration{2 * time.Second, 5 * time.Second} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			slow, p := &slowStore{Store: store}, &pulse{}
			e, _, stop := startBeating(t, w, slow, func(o *engine.Options) { o.Run.OffDeadline = 5 * time.Minute }, p.beat)
			slow.set(delay, false)
			time.Sleep(20 * time.Minute)
			r := e.Runs("c")[0]
			assert.Equal(t, remediate.Done, r.Step, "%s: %s %s", delay, r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations())
			assert.True(t, w.On())
			assert.Equal(t, 1, w.Count(bmc.CommandOff))
			p.requireAlive(t)
			slow.set(0, false)
			stop()
		})
	}
}

// Whenever the store stops answering, open runs stay visible as open, no run starts, and
// all continues when the store answers again. // I19, I20
func TestBlockedStoreAtAnyMoment(t *testing.T) {
	for at := 58; at <= 100; at += 3 {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			slow, p := &slowStore{Store: store}, &pulse{}
			e, _, stop := startBeating(t, w, slow, nil, p.beat)
			time.Sleep(time.Duration(at) * time.Second)
			slow.set(0, true)
			time.Sleep(15 * time.Second)
			begun, on := len(e.Runs("c")), w.On()
			time.Sleep(10 * time.Minute)
			if !on {
				require.Len(t, e.Status()[0].Runs, 1, "blocked after %ds: off, and on record", at)
			}
			assert.Len(t, e.Runs("c"), begun)
			slow.set(0, false)
			time.Sleep(10 * time.Minute)
			r := e.Runs("c")[0]
			assert.Equal(t, remediate.Done, r.Step, "blocked after %ds: %s %s", at, r.Reason, r.Note)
			assert.True(t, w.On(), "blocked after %ds", at)
			assert.Equal(t, 1, w.Isolations(), "blocked after %ds", at)
			p.requireAlive(t)
			stop()
		})
	}
}

// When the owner's store stops answering, the owner sends nothing after the end of its
// claim, and soon releases the cluster, however many calls are pending. // I19
func TestBlockedStoreEndsALeadership(t *testing.T) {
	for at := 59; at <= 74; at += 3 {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			slow := &slowStore{Store: store.Store}
			p := newPair(t, w, &failingStore{Store: slow}, nil)
			p.give("a")
			time.Sleep(time.Duration(at) * time.Second)
			slow.set(0, true)
			p.expire("a", time.Now().Add(9*time.Second))
			time.Sleep(9 * time.Second)
			sent, deleted := len(w.Commands()), w.Isolations()
			time.Sleep(20 * time.Second)
			require.Len(t, w.Commands(), sent, "blocked after %ds", at)
			require.Equal(t, deleted, w.Isolations(), "blocked after %ds", at)
			began := time.Now()
			p.take("a")
			assert.Less(t, time.Since(began), 20*time.Second, "blocked after %ds", at)
			slow.set(0, false)
			p.give("b")
			time.Sleep(5 * time.Minute)
			r := p.engine["b"].Runs("c")[0]
			assert.Equal(t, remediate.Done, r.Step, "blocked after %ds: %s %s", at, r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations())
			assert.True(t, w.On())
			p.end()
		})
	}
}

// However many hosts want a run while the store does not answer, the watchdog is not
// triggered, and the runs start when the store answers again. // I19
func TestBlockedStoreWithManyCandidates(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("c", 40, "z")
		slow, p := &slowStore{Store: store}, &pulse{}
		_, _, stop := fleets{f}.guardBeating(t, slow, func(o *engine.Options) { o.Guards.MaxInFlightPerZone = 50 }, p.beat)
		time.Sleep(30 * time.Second)
		slow.set(0, true)
		f.fail(20)
		time.Sleep(10 * time.Minute)
		assert.Zero(t, f.MostOff("all"))
		p.requireAlive(t)
		slow.set(0, false)
		time.Sleep(20 * time.Minute)
		assert.Zero(t, f.NotReady())
		stop()
	})
}
