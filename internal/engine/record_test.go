package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// ledger stands for the audit log: it takes what must be durable, or refuses.
type ledger struct {
	mu     sync.Mutex
	refuse func(event.Event) bool
	took   []event.Event
}

func (l *ledger) record(e event.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil && l.refuse(e) {
		return errors.New("no space left on device")
	}
	l.took = append(l.took, e)
	return nil
}

func (l *ledger) set(refuse func(event.Event) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = refuse
}

func (l *ledger) all() []event.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.took)
}

func (l *ledger) actions() (all []remediate.Action) {
	for _, e := range l.all() {
		if e.Type == event.Acting {
			all = append(all, e.Action)
		}
	}
	return all
}

func auditFailures(t *testing.T, events *event.Stream) int {
	t.Helper()
	return len(eventsOf(t, events, func(ev event.Event) bool {
		return ev.Type == event.Failed && ev.Reason == reason.AuditFailed
	}))
}

// A destructive action is recorded durably, with everything on which it was decided,
// before it is done. // I24
func TestDestructiveActionIsRecordedBeforeItIsDone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		l := &ledger{}
		l.set(func(e event.Event) bool { // called before the action, so nothing of it has come to pass
			assert.False(t, e.Action == remediate.SendOff && w.Count(bmc.CommandOff) > 0)
			assert.False(t, e.Action == remediate.IsolateNode && w.Isolations() > 0)
			return false
		})
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Record = l.record })
		time.Sleep(6 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, []remediate.Action{remediate.SendOff, remediate.IsolateNode}, l.actions())
		took := l.all()
		started, isolated := took[0], took[len(took)-1]
		assert.Equal(t, event.Started, started.Type)
		assert.Greater(t, len(started.Gates), 10)
		assert.NotEmpty(t, started.Check)
		assert.Regexp(t, `^unhealthySince=2\d{3}-\d\d-\d\dT\S+Z$`, started.Inputs, "the report of a period has the time of the detection from it")
		modes := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.ModeChanged })
		if assert.Len(t, modes, 1) {
			assert.Equal(t, "mode=evaluate", modes[0].Inputs)
		}
		assert.Contains(t, isolated.Inputs, "power=Off")
		assert.Contains(t, isolated.Inputs, "proven=true")

		told := map[remediate.Action]bool{}
		for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Acting }) {
			told[ev.Action] = ev.Recorded
		}
		assert.Equal(t, map[remediate.Action]bool{
			remediate.SendOff: true, remediate.BackupNode: false, remediate.IsolateNode: true, remediate.SendOn: false, remediate.RestoreTargetNode: false,
		}, told)
	})
}

// The reads on which the proof of off stands are told: one while the second is awaited, then both, also after the end. A read
// of before the Off that was accepted is none of them. They are for people: another process does not know them. // I1
func TestReadsOfOffAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		reads := func(e *engine.Engine) []run.OffRead {
			runs := e.Runs("c")
			if len(runs) == 0 {
				return nil
			}
			return engine.NewLookup(e).OffReads("c", runs[0].ID)
		}
		e, _, stop := start(t, w, store, nil)
		await(t, func() bool { return len(reads(e)) == 1 })
		first := reads(e)[0]
		assert.Equal(t, remediate.PowerOff, only(t, e).Step)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		assert.Zero(t, w.Isolations())
		await(t, func() bool { return only(t, e).Step == remediate.Done })
		both := reads(e)
		require.Len(t, both, 2)
		assert.Equal(t, first, both[0])
		assert.Equal(t, "ipmi://192.0.2.1:623", both[1].Devices)
		assert.GreaterOrEqual(t, both[1].At.Sub(both[0].At), 3*time.Second)
		assert.False(t, both[1].At.After(only(t, e).Isolated), "the deletion was decided on it")
		stop()
		assert.Empty(t, reads(running(t, w, store, nil)))
	})
}

// No run starts while its decision cannot be recorded. It starts as soon as that
// works. // I24
func TestNoRunStartsWithoutARecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		l := &ledger{refuse: func(event.Event) bool { return true }}
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Record = l.record })
		time.Sleep(6 * time.Minute)
		require.Empty(t, e.Runs("c"))
		require.Empty(t, w.Commands())
		assert.Equal(t, 1, auditFailures(t, events), "it is told once")
		assert.Equal(t, "no space left on device", gate(t, e, reason.AuditFailed).Value)
		refused(t, reason.AuditFailed)(e.Fence(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "test"}))
		l.set(nil)
		time.Sleep(6 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// While the audit log cannot be written, or no run could be saved, the dry run, the plan, the explanation and the order
// say so, and no run starts. // I24
func TestTroubleOfTheDisksIsAGate(t *testing.T) {
	troubled := func(t *testing.T, e *engine.Engine, code reason.Code, why string) {
		t.Helper()
		refused(t, code)(e.Fence(t.Context(), dryRun(byHand)))
		refused(t, code)(e.Fence(t.Context(), byHand))
		assert.Contains(t, gate(t, e, code).Value, why)
		p := must.Do(e.Plan(t.Context(), "c"))(t)
		require.NotEmpty(t, p.Items)
		assert.Equal(t, code, p.Items[0].Gate.Reason)
	}
	scene(t, "audit log", func(t *testing.T, w *world, store *failingStore) {
		var trouble atomic.Value
		trouble.Store("no space left on device")
		e := running(t, w, store, func(o *engine.Options) { o.AuditTrouble = func() string { return trouble.Load().(string) } })
		time.Sleep(6 * time.Minute)
		require.Empty(t, e.Runs("c"))
		require.Empty(t, w.Commands())
		troubled(t, e, reason.AuditFailed, "no space left on device")
		trouble.Store("")
		time.Sleep(6 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
	})
	scene(t, "state", func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		store.set(true)
		time.Sleep(6 * time.Minute)
		assert.Contains(t, gate(t, e, reason.NotSaved).Value, "disk full")
		store.set(false)
		time.Sleep(20 * time.Minute)
		require.Equal(t, remediate.Done, e.Runs("c")[0].Step)
	})
}

// A host that is off is powered on even if nothing can be recorded, and its Node is left
// alone. // I24
func TestHostsComeBackWithoutARecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		l := &ledger{refuse: func(e event.Event) bool { return e.Action == remediate.IsolateNode }}
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Record = l.record })
		time.Sleep(2 * time.Minute)
		require.Equal(t, remediate.DeleteNode, only(t, e).Step)
		l.set(func(event.Event) bool { return true })
		require.Eventually(t, func() bool { return auditFailures(t, events) == 1 }, time.Minute, time.Second)
		accepted(t)(e.Unfence(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "the disk is full"}))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Aborted, only(t, e).Step, only(t, e).Note)
		assert.NotZero(t, w.Count(bmc.CommandOn))
		assert.Zero(t, w.Isolations())
	})
}

func (l *ledger) orders() (all []event.Event) {
	for _, e := range l.all() {
		if e.Type == event.Ordered {
			all = append(all, e)
		}
	}
	return all
}

// I24: no crash leaves the effect of an order on a run without a record of the order. The
// record comes before the run is stored, also if nobody waits for the answer.
func TestOrderIsOnRecordBeforeItsEffect(t *testing.T) {
	for _, gone := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			l, people := &ledger{}, &stubborn{Store: store}
			e, events, _ := start(t, w, people, func(o *engine.Options) { o.Record = l.record })
			await(t, func() bool { return len(e.Runs("c")) > 0 })
			var stored atomic.Int32
			people.watch(func(run []byte) {
				if bytes.Contains(run, []byte(`"abort":`)) && stored.Add(1) == 1 {
					assert.Len(t, l.orders(), 1)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			if gone {
				cancel()
			}
			_, err := e.Abort(ctx, wire.Order{Cluster: "c", Run: e.Runs("c")[0].ID, Actor: "ada", Reason: "wrong host"})
			cancel()
			if !gone {
				require.NoError(t, err)
			}
			time.Sleep(5 * time.Minute)
			assert.Equal(t, remediate.Aborted, only(t, e).Step)
			require.NotZero(t, stored.Load())
			require.Len(t, l.orders(), 1)
			on := l.orders()[0]
			assert.Equal(t, []string{"ada", "wrong host", "n-1", e.Runs("c")[0].ID}, []string{on.Actor, on.Why, on.Node, on.Run})
			assert.Equal(t, 1, heard(t, events, "ada aborts"))
		})
	}
}

// An order that cannot be recorded is carried out all the same: it may bring a host
// back. // I24
func TestOrderIsCarriedOutWithoutARecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		l := &ledger{}
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Record = l.record })
		await(t, func() bool { return w.Count(bmc.CommandOff) > 0 })
		l.set(func(event.Event) bool { return true })
		accepted(t)(e.Abort(t.Context(), wire.Order{Cluster: "c", Run: only(t, e).ID, Actor: "ada", Reason: "wrong host"}))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOn))
		assert.Equal(t, remediate.Aborted, only(t, e).Step)
		recorded := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Ordered && ev.Recorded })
		assert.Empty(t, recorded, "the audit log is to take it when it can")
	})
}

// An action that was recorded too late, and so was not done, may still appear in the log.
// Each time an event says that it was not done. // I24
func TestLateRecordIsFollowedByNotDone(t *testing.T) {
	for _, tc := range []struct {
		late func(event.Event) bool
		told string
	}{
		{func(e event.Event) bool { return e.Action == remediate.SendOff }, "not done: "},
		{func(e event.Event) bool { return e.Type == event.Started }, event.NotStarted},
	} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			var mu sync.Mutex
			inLog := map[string]int{} // by run
			_, events, stop := start(t, w, store, func(o *engine.Options) {
				o.Record = func(e event.Event) error {
					if !tc.late(e) {
						return nil
					}
					time.Sleep(5 * time.Second)
					mu.Lock()
					defer mu.Unlock()
					inLog[e.Run]++
					return fmt.Errorf("wait for the audit log: %w", context.DeadlineExceeded)
				}
			})
			time.Sleep(10 * time.Minute)
			stop()
			mu.Lock()
			defer mu.Unlock()
			require.NotEmpty(t, inLog)
			require.Zero(t, w.Count(bmc.CommandOff))
			undone := map[string]int{}
			for _, ev := range eventsOf(t, events, func(ev event.Event) bool {
				return ev.Type == event.Failed && strings.HasPrefix(ev.Message, tc.told)
			}) {
				undone[ev.Run]++
			}
			assert.Equal(t, inLog, undone)
			if tc.told == "not done: " { // and before it, that it was to be done: so a reader takes back no earlier action
				begun := map[string]int{}
				for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Acting && tc.late(ev) }) {
					begun[ev.Run]++
				}
				assert.Equal(t, inLog, begun)
			}
		})
	}
}

// disownedStore is the store of an instance that has lost the cluster and does not know it yet: it takes no run.
type disownedStore struct{ *failingStore }

func (s disownedStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	if r.Kind == state.KindRun {
		return 0, state.ErrNotOwner
	}
	return s.failingStore.Put(ctx, r)
}

// A run whose start is in the log, and that the store has refused, was not started: the log says that, too. // I24
func TestRefusedRunIsFollowedByNotStarted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var mu sync.Mutex
		inLog := map[string]int{} // by run
		_, events, stop := start(t, w, disownedStore{store}, func(o *engine.Options) {
			o.Record = func(e event.Event) error {
				mu.Lock()
				defer mu.Unlock()
				inLog[e.Run]++
				return nil
			}
		})
		time.Sleep(10 * time.Minute)
		stop()
		mu.Lock()
		defer mu.Unlock()
		require.NotEmpty(t, inLog)
		undone := map[string]int{}
		for _, ev := range eventsOf(t, events, func(ev event.Event) bool {
			return ev.Type == event.Failed && strings.HasPrefix(ev.Message, event.NotStarted)
		}) {
			undone[ev.Run]++
		}
		assert.Equal(t, inLog, undone)
	})
}
