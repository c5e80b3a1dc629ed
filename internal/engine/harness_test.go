package engine_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
)

// untilOff is when the hung host of a world has been sent its first Off: the check waits
// 60 s, then comes the probe, then the first look of the run.
const untilOff = 62 * time.Second

// failingStore is a store that refuses every write while it is told to.
type failingStore struct {
	state.Store
	changed chan struct{} // by another instance
	mu      sync.Mutex
	fail    bool
}

func (s *failingStore) Watch(context.Context) <-chan struct{} { return s.changed }

// syncChanges makes the engine take in what another instance has written.
func (s *failingStore) syncChanges() {
	s.changed <- struct{}{}
	time.Sleep(6 * time.Second)
}

func (s *failingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return 0, errors.New("disk full")
	}
	return s.Store.Put(ctx, r)
}

func (s *failingStore) set(fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// start runs an engine over the world until the test's bubble ends it.
func start(t *testing.T, w *world, store state.Store, change func(*engine.Options)) (*engine.Engine, *event.Stream, func()) {
	t.Helper()
	return startBeating(t, w, store, change, func() {})
}

// startBeating is start for a test that listens to the beats for the watchdog.
func startBeating(t *testing.T, w *world, store state.Store, change func(*engine.Options), beat func()) (*engine.Engine, *event.Stream, func()) {
	t.Helper()
	events := event.NewStream()
	opt := engine.Options{
		Store: store, Hosts: w, Open: func(bmc.Device) (bmc.Power, error) { return w.bmc(), nil }, Events: events,
		Clusters: []engine.ClusterOptions{{Name: "c", Mode: guard.ModeEvaluate, Isolation: remediate.IsolateDelete, IdentityMode: "required", Watch: w.Watch(), Kube: w,
			Rules: policy.Rules{Namespaces: []string{"ns"}}}},
		Guards: guard.Limits{ViewMaxAge: time.Minute, ClockSkewMax: time.Minute, MaxInFlight: 5, MaxInFlightPercent: 100,
			MaxInFlightPerZone: 1, ZoneBreakerPercent: 55, ZoneBreakerMin: 3, MaxFencesPerDay: 10, MaxInFlightTotal: 20},
		Run: remediate.Limits{OffDeadline: time.Minute, APITimeout: 2 * time.Minute, PodsGoneTimeout: time.Minute, OnDeadline: 3 * time.Minute,
			RestoreTimeout: 10 * time.Minute, RunTimeout: 2 * time.Hour, MinPowerInterval: time.Minute, MaxAttempts: 3, PowerOnFoundOff: true,
			ReadyTimeout: 10 * time.Minute},
		Power: power.ReadTiming{ReadTimeout: 5 * time.Second, OffReadSpacing: 3 * time.Second},
	}
	opt.Escalation = asks(&opt, nil)
	if change != nil {
		change(&opt)
	}
	e, err := engine.New(t.Context(), opt)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, beat) }()
	ticking := make(chan struct{})
	go func() { w.Run(ctx); close(ticking) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
			<-ticking
		})
	}
	t.Cleanup(stop)
	return e, events, stop
}

func openStore(t *testing.T, dir string) state.Store {
	t.Helper()
	s, err := boltstore.Open(filepath.Join(dir, "state.db"))
	require.NoError(t, err)
	return s
}

// eventsOf are the events so far that a test asks for.
func eventsOf(t *testing.T, s *event.Stream, keep func(event.Event) bool) []event.Event {
	t.Helper()
	all, err := s.After(t.Context(), 0)
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(ev event.Event) bool { return !keep(ev) })
}
