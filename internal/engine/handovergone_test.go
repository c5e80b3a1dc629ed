package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/fake"
)

// An object that vanishes is gone at once only if its remediator had a finalizer on it, and only if its
// kind is still served; else the remediator may still act on what it saw. An answer of another
// cluster says nothing. // I22
func TestObjectThatVanishes(t *testing.T) {
	for name, c := range map[string]struct {
		finalizer bool
		fails     error
		gone      time.Duration // 0: never
	}{
		"let go by its remediator":   {true, nil, time.Second},
		"had only a status":          {false, nil, time.Minute},
		"its kind is served no more": {true, fmt.Errorf("%w: Reboot", escalate.ErrNotServed), time.Minute},
		"another cluster answers":    {true, errors.New("it was made in another cluster"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, _, stop := start(t, w, store, handingOver(w))
				awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
				q := others(w)[0]
				q.Begun, q.Finalizer, q.Conditions = true, c.finalizer, []policy.Condition{{Type: "Processing", Status: "True"}}
				w.Do(func(s *fake.State) { s.PutOther(&q) })
				time.Sleep(time.Minute)
				vanished := time.Now()
				w.Do(func(s *fake.State) { s.DropOther(&q); s.OthersFail = c.fails })
				if c.gone == 0 {
					time.Sleep(time.Hour)
					assert.True(t, askedRecord(t, store).Objects[0].Gone.IsZero())
					assert.Contains(t, gate(t, e, reason.RequestFailed).Value, "in another cluster")
					refusesToFence(t, e)
					stop()
					return
				}
				awaitAsked(t, w, "it is gone", func() bool { return !askedRecord(t, store).Objects[0].Gone.IsZero() })
				after := askedRecord(t, store).Objects[0].Gone.Sub(vanished)
				require.GreaterOrEqual(t, after, c.gone-time.Second)
				if c.finalizer && c.fails == nil {
					assert.Less(t, after, time.Minute)
				}
				stop()
			})
		})
	}
}

// That an object is missing counts only as long as each read says so: between two reads that fail
// it may have been there. // I22
func TestObjectThatIsMissingNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		q := others(w)[0]
		q.Begun, q.Conditions = true, []policy.Condition{{Type: "Processing", Status: "True"}}
		w.Do(func(s *fake.State) { s.PutOther(&q) })
		time.Sleep(time.Minute)
		w.Do(func(s *fake.State) { s.DropOther(&q) })
		time.Sleep(10 * time.Second)
		w.Do(func(s *fake.State) { s.OthersFail = errors.New("the API server is away") })
		time.Sleep(2 * time.Minute)
		back := time.Now()
		w.Do(func(s *fake.State) { s.OthersFail = nil })
		awaitAsked(t, w, "it is gone", func() bool { return !askedRecord(t, store).Objects[0].Gone.IsZero() })
		assert.GreaterOrEqual(t, askedRecord(t, store).Objects[0].Gone.Sub(back), 59*time.Second)
		stop()
	})
}

// A request whose creation was late may have lost its mark before fenced knew its UID: fenced was killed, and a person
// removed the mark. What has its name and no mark keeps everybody away until it is gone, and fenced leaves it alone. // I22
func TestUnknownObjectThatLostItsMark(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		asked := make(chan struct{})
		w.Do(func(s *fake.State) { s.OnHandover = func() error { close(asked); return errors.New("no answer") } })
		e, _, stop := start(t, w, store, handingOver(w))
		<-asked
		newest := func() escalate.Object { return askedRecord(t, store).Objects[0] }
		o := newest()
		late := policy.Request{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: "late", Created: time.Now(), TemplateName: o.Template, Begun: true}
		w.Do(func(s *fake.State) { s.OnHandover = nil; s.PutOther(&late) })
		time.Sleep(10 * time.Minute)
		assert.True(t, newest().Gone.IsZero())
		assert.Contains(t, gate(t, e, reason.Contested).Value, "does not carry fenced's mark")
		refusesToFence(t, e)
		require.Len(t, others(w), 1)
		assert.Equal(t, late, others(w)[0])
		w.Recover()
		vanished := time.Now()
		w.Do(func(s *fake.State) { s.DropOther(&late) })
		awaitAsked(t, w, "it is gone", func() bool { return !newest().Gone.IsZero() })
		assert.GreaterOrEqual(t, newest().Gone.Sub(vanished), 59*time.Second)
		stop()
	})
}

// A remediator may take its time to let go of an object that fenced has deleted: that is told only
// when it takes long.
func TestDeletionThatTakesAWhileIsNoAlert(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, events, stop := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		q := others(w)[0]
		q.Begun, q.Finalizer, q.Deleting = true, true, true
		w.Do(func(s *fake.State) { s.PutOther(&q) })
		contested := func(ev event.Event) bool { return ev.Type == event.Failed && ev.Reason == reason.Contested }
		time.Sleep(escalate.IgnoredAfter - 30*time.Second)
		assert.Empty(t, eventsOf(t, events, contested))
		time.Sleep(time.Minute)
		assert.Len(t, eventsOf(t, events, contested), 1)
		stop()
	})
}
