package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/must"
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
			e, _, _ := startBeating(t, w, slow, func(o *engine.Options) { o.Run.OffDeadline = 5 * time.Minute }, p.beat)
			slow.set(delay, false)
			time.Sleep(20 * time.Minute)
			r := e.Runs("c")[0]
			assert.Equal(t, remediate.Done, r.Step, "%s: %s %s", delay, r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations())
			assert.True(t, w.On())
			assert.Equal(t, 1, w.Count(bmc.CommandOff))
			p.requireAlive(t)
			slow.set(0, false)
		})
	}
}

// Whenever the store stops answering, open runs stay visible as open, no run starts, and
// all continues when the store answers again. // I19, I20
func TestBlockedStoreAtAnyMoment(t *testing.T) {
	for at := 58; at <= 100; at += 3 {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			slow, p := &slowStore{Store: store}, &pulse{}
			e, _, _ := startBeating(t, w, slow, nil, p.beat)
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
		})
	}
}

// However many hosts want a run while the store does not answer, the watchdog is not
// triggered, and the runs start when the store answers again. // I19
func TestBlockedStoreWithManyCandidates(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("c", 40, "z")
		slow, p := &slowStore{Store: store}, &pulse{}
		fleets{f}.guardBeating(t, slow, func(o *engine.Options) { o.Guards.MaxInFlightPerZone = 50 }, p.beat)
		time.Sleep(30 * time.Second)
		slow.set(0, true)
		f.fail(20)
		time.Sleep(10 * time.Minute)
		assert.Zero(t, f.MostOff("all"))
		p.requireAlive(t)
		slow.set(0, false)
		time.Sleep(20 * time.Minute)
		assert.Zero(t, f.NotReady())
	})
}

// recordingStarts lets the record of the first start take so long.
func recordingStarts(long time.Duration) (begun chan struct{}, record func(event.Event) error) {
	begun = make(chan struct{})
	var once sync.Once
	return begun, func(e event.Event) error {
		if e.Type == event.Started {
			once.Do(func() { close(begun); time.Sleep(long) })
		}
		return nil
	}
}

// A run that was decided in one leadership is not started in a later one, because others
// have acted since. So the cluster is released only after the start. // I19
func TestStartDoesNotOutliveItsLeadership(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		begun, record := recordingStarts(4900 * time.Millisecond)
		p := newPair(t, w, store, func(name string, o *engine.Options) {
			if name == "a" {
				o.Record = record
			}
		})
		p.give("a")
		<-begun
		p.take("a")
		p.give("b")
		await(t, func() bool { return len(p.engine["b"].Runs("c")) > 0 })
		p.take("b")
		p.give("a")
		time.Sleep(5 * time.Second)
		runs, err := state.LoadRuns(t.Context(), store)
		assert.NoError(t, err)
		assert.Len(t, runs, 1, "there is one run on the Node")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		assert.Equal(t, 1, w.Isolations())
	})
}

// However long the start of a run takes, the deciding goroutine continues. // L2
func TestSlowStartDoesNotStopTheDecidingLoop(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, record := recordingStarts(time.Minute)
		p := &pulse{}
		e, _, _ := startBeating(t, w, store, func(o *engine.Options) { o.Record = record }, p.beat)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Less(t, p.silence(), 3*time.Second, "the longest time without a beat")
	})
}

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
			runs := must.Do(state.LoadRuns(t.Context(), store))(t)
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
		e := running(t, w, mute, nil)
		await(t, func() bool { return len(e.Runs("c")) > 0 })
		mute.mu.Lock()
		mute.deaf = true
		mute.mu.Unlock()
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		assert.Zero(t, w.Count(bmc.CommandOff))
	})
}

// A run that may be in the store, in a cluster that another instance owns by now, is
// reported: it may continue there.
func TestUncertainFirstSaveOfAnotherOwnerIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		mute := &muteStore{Store: store.Store, mute: 1}
		p := newPair(t, w, &failingStore{Store: mute}, nil)
		p.give("a")
		await(t, func() bool { return len(p.engine["a"].Runs("c")) > 0 })
		mute.mu.Lock()
		mute.deaf = true
		mute.mu.Unlock()
		time.Sleep(3 * time.Second)
		p.give("b")
		time.Sleep(3 * time.Second)
		assert.Contains(t, strings.Join(p.told(t, "a", event.Failed), "\n"), "another instance may find it open and continue it")
	})
}

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

// onIntent calls f once, while a run's intent of an action is saved.
func onIntent(store *stubborn, a remediate.Action, f func()) {
	var once sync.Once
	store.watch(func(run []byte) {
		if bytes.Contains(run, []byte(`"intent":{"action":"`+string(a)+`"`)) {
			once.Do(f)
		}
	})
}

// The store hangs while the intent is saved, and the Node is Ready again, or another remediator comes, before the
// command would be sent. // I4, I22
func TestSlowSaveDoesNotPowerOff(t *testing.T) {
	for code, happens := range map[reason.Code]func(*world){
		reason.Recovered: func(w *world) { w.Recover() },
		reason.Contested: func(w *world) { w.setContested(remediate.Yes) },
	} {
		for _, hang := range []time.Duration{5 * time.Second, time.Minute} {
			bubble(t, func(t *testing.T, w *world, inner *failingStore) {
				store := &stubborn{Store: inner}
				e := running(t, w, store, nil)
				onIntent(store, remediate.SendOff, func() { happens(w); time.Sleep(hang) })
				time.Sleep(5 * time.Minute)
				assert.Zero(t, w.Count(bmc.CommandOff), "a save of %s", hang)
				assert.Equal(t, code, only(t, e).Reason)
			})
		}
	}
}

// The same if the audit log is slow. // I4
func TestSlowRecordDoesNotPowerOffAReadyNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var once sync.Once
		e := running(t, w, store, func(o *engine.Options) {
			o.Record = func(e event.Event) error {
				if e.Action == remediate.SendOff {
					once.Do(func() { w.Recover(); time.Sleep(4900 * time.Millisecond) })
				}
				return nil
			}
		})
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		assert.Equal(t, "Recovered", string(only(t, e).Reason))
	})
}

// A Machine whose Node is Ready is not replaced either. // I4, I14
func TestSlowSaveDoesNotReplaceAReadyMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		w.ofClusterAPI()
		store := &stubborn{Store: inner}
		running(t, w, store, nil)
		var saved atomic.Bool
		onIntent(store, remediate.DeleteTargetMachine, func() { saved.Store(true); w.Recover(); time.Sleep(time.Minute) })
		time.Sleep(5 * time.Minute)
		require.True(t, saved.Load())
		assert.Zero(t, w.HandedOver())
	})
}

// A BMC that is found to read Off falsely while the record is written gets no Off. // I5
func TestFreezeDuringTheRecordPreventsOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		running(t, w, store, func(o *engine.Options) {
			o.Record = func(e event.Event) error {
				if e.Action == remediate.SendOff {
					lied(t, store, "n-1", "")
					store.changed <- struct{}{}
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
	})
}

// A store and an audit log that are always slow do not prevent fencing: what was seen is
// read once more. // L1
func TestSlowStoreAndRecordStillFence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		store.watch(func([]byte) { time.Sleep(7 * time.Second) })
		e := running(t, w, store, func(o *engine.Options) {
			o.Run.OffDeadline = 5 * time.Minute
			o.Record = func(event.Event) error { time.Sleep(4 * time.Second); return nil }
		})
		time.Sleep(30 * time.Minute)
		stands(t, e, remediate.Done)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		assert.Equal(t, 1, w.Isolations())
		store.watch(func([]byte) {})
	})
}

// blinking is a BMC that answers a single time, when it is told to.
type blinking struct {
	bmc.Power
	once *atomic.Bool
}

func (b blinking) Read(ctx context.Context) (bmc.Reading, error) {
	if b.once.Swap(false) {
		return bmc.Reading{State: bmc.On, At: time.Now(), Session: 1, Identity: bmc.Identity{UUID: hostUUID}}, nil
	}
	return b.Power.Read(ctx)
}

// Evidence against a run that only this second look finds is not lost. // I26
func TestSecondLookIsEvidence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		w.pauseCheck()
		w.dead()
		store, once := &stubborn{Store: inner}, new(atomic.Bool)
		e := running(t, w, store, func(o *engine.Options) {
			o.Open = func(bmc.Device) (bmc.Power, error) { return blinking{w.bmc(), once}, nil }
		})
		onIntent(store, remediate.IsolateNode, func() { time.Sleep(7 * time.Second); once.Store(true) })
		time.Sleep(time.Second)
		accepted(t)(e.ConfirmOff(t.Context(), byHand))
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Held, "ConfirmedOffContradicted")
		assert.Zero(t, w.Isolations())
	})
}

// trackingStore knows whether another user has changed a pin, and counts how often the pins are read.
type trackingStore struct {
	*failingStore
	changes   atomic.Uint64
	reads     atomic.Int64
	readsFail atomic.Bool
}

func (s *trackingStore) Changes(kind state.Kind) uint64 {
	if kind != state.KindPin {
		return 0
	}
	return s.changes.Load()
}

func (s *trackingStore) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if kind == state.KindPin {
		s.reads.Add(1)
		if s.readsFail.Load() {
			return nil, errors.New("no quorum")
		}
	}
	return s.failingStore.List(ctx, kind)
}

// ListAfter implements state.Tracking.
func (s *trackingStore) ListAfter(ctx context.Context, kind state.Kind, version uint64) ([]state.Record, error) {
	list, err := s.List(ctx, kind)
	return slices.DeleteFunc(list, func(r state.Record) bool { return r.Version <= version }), err
}

// The pins are read again only after another user has changed one, until all could be read.
func TestPinsAreReadAgainOnlyIfOneChanged(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		s := &trackingStore{failingStore: store}
		s.changes.Store(1) // the watch stands
		running(t, w, s, nil)
		s.syncChanges()
		read := s.reads.Load()
		s.syncChanges()
		assert.Equal(t, read, s.reads.Load(), "something else was written")
		s.changes.Add(1)
		s.syncChanges()
		assert.Equal(t, read+1, s.reads.Load())
		s.readsFail.Store(true)
		s.changes.Add(1)
		s.syncChanges()
		read = s.reads.Load()
		s.readsFail.Store(false)
		time.Sleep(2 * time.Second)
		assert.Equal(t, read+1, s.reads.Load(), "it is tried again")
		s.syncChanges()
		assert.Equal(t, read+1, s.reads.Load())

		must.Do(store.Put(t.Context(), state.Record{Kind: state.KindPin, Key: "c/bad", Data: []byte("{}")}))(t)
		s.changes.Add(1)
		s.syncChanges()
		read = s.reads.Load()
		s.syncChanges()
		assert.Greater(t, s.reads.Load(), read, "one could not be read: this instance may have written it anew since")
	})
}
