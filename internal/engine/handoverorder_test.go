package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// giveUp orders to give up a record.
func giveUp(id string, yes bool) wire.Order {
	return wire.Order{Run: id, Actor: "ada", Reason: "the remediator is gone", Role: wire.Admin, AsIs: true, Yes: yes}
}

// refuses requires that the order is refused, and that the record stays.
func refuses(t *testing.T, e *engine.Engine, store state.Store, o wire.Order, why string) {
	t.Helper()
	_, err := e.Abort(t.Context(), o)
	refusal, is := reason.AsRefusal(err)
	require.True(t, is, "%v", err)
	assert.Equal(t, reason.OrderRefused, refusal.Reason)
	assert.Contains(t, refusal.Message, why)
	assert.Nil(t, askedRecord(t, store).GivenUp)
}

// A person gives up a record: not while its object exists or nobody knows, unless the order says so;
// the order is in the audit log. An object that is left still keeps everybody away. // I22, I24
func TestPersonGivesUpARecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		audited := []string{}
		change := handingOver(w)
		e, events, stop := start(t, w, store, func(o *engine.Options) {
			change(o)
			o.Record = func(ev event.Event) error { audited = append(audited, ev.Message); return nil }
		})
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		answer(w, "True")
		time.Sleep(time.Minute)
		id := askedRecord(t, store).ID
		notAsIs := giveUp(id, true)
		notAsIs.AsIs = false
		refuses(t, e, store, notAsIs, "--as-is")
		refuses(t, e, store, giveUp(id, false), "Reboot ns/m-1 exists")
		w.Do(func(s *fake.State) { s.OthersFail = errors.New("no answer") })
		refuses(t, e, store, giveUp(id, false), "is not known")
		refusesToFence(t, e)
		w.Do(func(s *fake.State) { s.OthersFail = nil })

		out, err := e.Abort(t.Context(), giveUp(id, true))
		require.NoError(t, err)
		assert.Equal(t, "Reboot ns/m-1 of record "+id, out.Asked)
		r := askedRecord(t, store)
		require.NotNil(t, r.GivenUp)
		assert.Equal(t, []string{"ada", "the remediator is gone"}, []string{r.GivenUp.Actor, r.GivenUp.Reason})
		assert.Contains(t, audited[len(audited)-1], "ada gives up Reboot ns/m-1 of record "+id+": the remediator is gone")
		assert.Equal(t, 1, heard(t, events, "ada gives up Reboot"))
		time.Sleep(5 * time.Minute)
		assert.Empty(t, slotsOf(t, store))
		assert.Len(t, others(w), 1, "it is left as it is, and no other is made beside it")
		_, err = e.Abort(t.Context(), giveUp(id, true))
		refusal, is := reason.AsRefusal(err)
		require.True(t, is, "%v", err)
		assert.Equal(t, reason.NoRun, refusal.Reason)

		w.changeCheck(func(c *policy.Check) { c.Evaluator = "" }) // else it asks again at once
		time.Sleep(time.Second)
		q := others(w)[0]
		w.Do(func(s *fake.State) { s.DropOther(&q) })
		time.Sleep(time.Second)
		_, err = e.Fence(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "r", Role: wire.Admin})
		require.NoError(t, err)
		stop()
	})
}

// A record that is given up just before its object is made makes none: nobody would look after it. // I19, I22
func TestRecordGivenUpBeforeItsObjectIsMade(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var e *engine.Engine
		var stop func()
		given, change := "", handingOver(w)
		e, _, stop = start(t, w, store, func(o *engine.Options) {
			change(o)
			o.Record = func(ev event.Event) error {
				if ev.Type != event.Requested || given != "" {
					return nil
				}
				given = askedRecord(t, store).ID
				_, err := e.Abort(t.Context(), giveUp(given, true))
				return err
			}
		})
		awaitAsked(t, w, "a new record asks", func() bool { return len(others(w)) == 1 })
		require.NotEmpty(t, given)
		assert.NotContains(t, others(w)[0].MadeBy, given)
		answer(w, "True")
		w.Recover()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		list, err := state.LoadAsked(t.Context(), store)
		require.NoError(t, err)
		require.Len(t, list, 2)
		for _, r := range list {
			assert.Equal(t, r.ID == given, r.GivenUp != nil)
			assert.False(t, r.Ended.IsZero())
		}
		stop()
	})
}

// Where the object is known not to exist, no more is needed.
func TestPersonGivesUpARecordWithoutAnObject(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		q := others(w)[0]
		w.Do(func(s *fake.State) { s.DropOther(&q) })
		time.Sleep(10 * time.Second)
		require.True(t, askedRecord(t, store).Objects[0].Gone.IsZero(), "it is not believed yet")
		_, err := e.Abort(t.Context(), giveUp(askedRecord(t, store).ID, false))
		require.NoError(t, err)
		stop()
	})
}

// A record that cannot be read is deleted then, and its target is free.
func TestPersonGivesUpARecordThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		spoilAsked(t, store, "asked c 9 n-1 - -")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		require.Empty(t, e.Runs("c"))
		refuses(t, e, store, giveUp("9", false), "cannot be read")
		_, err := e.Abort(t.Context(), giveUp("9", true))
		require.NoError(t, err)
		list, err := state.LoadAsked(t.Context(), store)
		require.NoError(t, err)
		assert.Empty(t, list)
		time.Sleep(10 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}

// Without the audit log nothing is given up. // I24
func TestRecordIsNotGivenUpWithoutTheAuditLog(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		spoilAsked(t, store, "asked c 9 n-1 - -")
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Record = func(event.Event) error { return errors.New("disk full") } })
		time.Sleep(time.Minute)
		_, err := e.Abort(t.Context(), giveUp("9", true))
		require.ErrorContains(t, err, "disk full")
		assert.NotEmpty(t, askedRecord(t, store).Unreadable)
		stop()
	})
}
