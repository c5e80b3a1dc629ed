package engine_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
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

// all is what it took.
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
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Record = l.record })
		time.Sleep(6 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, []remediate.Action{remediate.SendOff, remediate.IsolateNode}, l.actions())
		took := l.all()
		started, isolated := took[0], took[len(took)-1]
		assert.Equal(t, event.Started, started.Type)
		assert.Greater(t, len(started.Gates), 10)
		assert.NotEmpty(t, started.Check)
		assert.Contains(t, isolated.Inputs, "power=Off")
		assert.Contains(t, isolated.Inputs, "proven=true")

		told := map[remediate.Action]bool{}
		for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Acting }) {
			told[ev.Action] = ev.Recorded
		}
		assert.Equal(t, map[remediate.Action]bool{
			remediate.SendOff: true, remediate.BackupNode: false, remediate.IsolateNode: true, remediate.SendOn: false, remediate.RestoreTargetNode: false,
		}, told)
		stop()
	})
}

// No run starts while its decision cannot be recorded. It starts as soon as that
// works. // I24
func TestNoRunStartsWithoutARecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		l := &ledger{refuse: func(event.Event) bool { return true }}
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Record = l.record })
		time.Sleep(6 * time.Minute)
		require.Empty(t, e.Runs("c"))
		require.Empty(t, w.Commands())
		assert.Equal(t, 1, auditFailures(t, events), "it is told once")
		assert.Equal(t, "no space left on device", gate(t, e, reason.AuditFailed).Value)
		_, err := e.Fence(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "test"})
		var refusal *reason.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, reason.AuditFailed, refusal.Reason)
		l.set(nil)
		time.Sleep(6 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}

// A host that is off is powered on even if nothing can be recorded, and its Node is left
// alone. // I24
func TestHostsComeBackWithoutARecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		l := &ledger{refuse: func(e event.Event) bool { return e.Action == remediate.IsolateNode }}
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Record = l.record })
		time.Sleep(2 * time.Minute)
		require.Equal(t, remediate.DeleteNode, only(t, e).Step)
		l.set(func(event.Event) bool { return true })
		require.Eventually(t, func() bool { return auditFailures(t, events) == 1 }, time.Minute, time.Second)
		_, err := e.Unfence(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "the disk is full"})
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Aborted, only(t, e).Step, only(t, e).Note)
		assert.NotZero(t, w.Count(bmc.CommandOn))
		assert.Zero(t, w.Isolations())
		stop()
	})
}
