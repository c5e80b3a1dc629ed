package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// The limit of checks by which others are asked does not count those from fenced's own template: no
// request is made for them, however many there are.
func TestManyChecksWithTheOwnTemplate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change := escalating(w, otherTemplate)
		_, events, _ := start(t, w, store, func(o *engine.Options) {
			change(o)
			for i := range 60 {
				p := nodePolicy()
				p.Name, p.Selector, p.Strategy, p.Template = fmt.Sprint("a", i), labels.Nothing(), policy.CreateRequests, &powerTemplate
				o.Clusters[0].FileChecks = append(o.Clusters[0].FileChecks, p)
			}
		})
		awaitAsked(t, w, "the remediator of the last check is asked", func() bool { return len(others(w)) == 1 })
		time.Sleep(time.Minute)
		assert.Empty(t, eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.CheckChanged && ev.Reason == reason.CheckDisabled }))
	})
}

// An object that vanishes again and again is not made without end: the host is quarantined after as
// many as it may have runs in a day. // I15
func TestObjectThatVanishesAgainAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change := handingOver(w)
		e := running(t, w, store, func(o *engine.Options) { change(o); o.Guards.MaxFencesPerDay = 3 })
		made := 0
		for range 3600 {
			time.Sleep(time.Second)
			for _, q := range others(w) {
				made++
				w.Do(func(s *fake.State) { s.DropOther(&q) })
			}
		}
		assert.Equal(t, 3, made)
		assert.Len(t, askedRecord(t, store).Objects, 3)
		gate(t, e, reason.Quarantined)
		assert.Empty(t, w.Commands())
	})
}

// A host for which another remediator was asked is in flight: the next one waits until that request is
// gone, also after a restart. // I11
func TestRequestsAreInFlight(t *testing.T) {
	for name, limit := range map[reason.Code]func(*engine.Options){
		reason.InFlightLimit: func(o *engine.Options) { o.Guards.MaxInFlight = 1 },
		reason.TotalInFlight: func(o *engine.Options) { o.Guards.MaxInFlightTotal = 1 },
	} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			limited := func(o *engine.Options) { handingOver(w)(o); limit(o) }
			_, _, stop := start(t, w, store, limited)
			time.Sleep(2 * time.Minute)
			require.Len(t, others(w), 1)
			answer(w, "True")
			w.addOther(100) // well, and then not
			w.Do(func(s *fake.State) { s.Host("other-100").Hang(time.Time{}); s.SetReady("other-100", "Unknown") })
			time.Sleep(90 * time.Second)
			require.Len(t, others(w), 1, "%s", name)
			stop()
			e := running(t, w, store, limited)
			time.Sleep(3 * time.Minute)
			assert.Len(t, others(w), 1, "%s", name)
			x := must.Do(e.Explain(t.Context(), "c", "other-100"))(t)
			codes := map[reason.Code]bool{}
			for _, g := range x.Gates {
				codes[g.Reason] = codes[g.Reason] || !g.Pass
			}
			assert.True(t, codes[name], "%s is not among %+v", name, x.Gates)
			w.Recover()
			time.Sleep(3 * time.Minute)
			require.Len(t, others(w), 1, "%s", name)
			assert.NotEqual(t, "m-1", others(w)[0].Name, "the place is free")
		})
	}
}

// refusedNames are objects of which none can be made for the Machines of a name.
type refusedNames struct {
	escalate.Objects
	prefix string
	why    error
}

func (r refusedNames) Prepare(ctx context.Context, check *policy.Check, t remediate.Target, from policy.Template, controlPlane bool) (request.Draft, error) {
	if strings.HasPrefix(t.Machine, r.prefix) {
		return request.Draft{}, r.why
	}
	return r.Objects.Prepare(ctx, check, t, from, controlPlane)
}

// However many requests cannot be made, and are tried again and again, the one for another target is made. // L1
func TestRequestsThatFailKeepNoOtherFromBeingMade(t *testing.T) {
	const failing = 25                                             // more than one round writes
	name := func(i int) string { return fmt.Sprintf("a-%02d", i) } // before m-1, by which asks are sorted
	for _, why := range []error{errors.New("exceeded quota"), &reason.Refusal{Reason: reason.Contested, Message: "somebody else is at work"}} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			for i := range failing {
				w.addHost(name(i), name(i), fmt.Sprintf("4c4c4544-0042-3510-8054-b4c04f4d41%02d", i))
			}
			for i := range 2 * failing { // else a zone of which most is down lets nothing begin
				w.addHost(fmt.Sprint("well-", i), fmt.Sprint("well-", i), fmt.Sprintf("4c4c4544-0042-3510-8054-b4c04f4d42%02d", i))
			}
			change := handingOver(w)
			running(t, w, store, func(o *engine.Options) {
				change(o)
				askedBy(o, func(made escalate.Objects) escalate.Objects { return refusedNames{made, "a-", why} })
			})
			w.Do(func(s *fake.State) {
				for i := range failing {
					s.Host(name(i)).Hang(time.Time{})
					s.SetReady(name(i), "Unknown")
				}
			})
			awaitAsked(t, w, why.Error(), func() bool { return len(others(w)) == 1 })
			assert.Equal(t, "m-1", others(w)[0].Name)
		})
	}
}

func askedRecord(t *testing.T, store state.Store) escalate.Record {
	t.Helper()
	list := must.Do(escalate.Load(t.Context(), store))(t)
	require.Len(t, list, 1)
	return list[0]
}

// refusesToFence requires that not even a person fences the target.
func refusesToFence(t *testing.T, e *engine.Engine) {
	t.Helper()
	refused(t, reason.UnderRemediation)(e.Fence(t.Context(), byAdmin()))
}

// Who is asked takes a slot of all clusters, and gives it up when it has worked for as long as a run
// may; its target stays blocked, also after a restart. // I11, I22
func TestAskedRemediatorHasASlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change := handingOver(w)
		limit := func(o *engine.Options) { change(o); o.Guards.MaxInFlightTotal = 1 }
		must.Do(statetest.TakeSlot(t.Context(), store, 9, state.Slot{Cluster: "d", Run: "theirs"}))(t)
		e, _, stop := start(t, w, store, limit)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		gate(t, e, reason.TotalInFlight)
		require.NoError(t, statetest.FreeSlot(t.Context(), store, "theirs"))
		askedAndBegun(t, w)
		time.Sleep(time.Hour)
		assert.Equal(t, []string{askedRecord(t, store).ID}, slotsOf(t, store))
		time.Sleep(time.Hour + time.Minute)
		assert.Empty(t, slotsOf(t, store))
		refusesToFence(t, e)
		stop()
		e = running(t, w, store, limit)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, slotsOf(t, store))
		require.Len(t, others(w), 1)
		refusesToFence(t, e)
		assert.Empty(t, w.Commands())
	})
}

// What waits for a person, or what nobody carries out, has no slot. // I11
func TestRecordThatStandsStillHasNoSlot(t *testing.T) {
	for name, change := range map[string]func(*world) func(*engine.Options){
		"nobody carries it out": handingOver,
		"it does not stop":      func(w *world) func(*engine.Options) { return escalating(w, otherTemplate, thirdTemplate) },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			e := running(t, w, store, change(w))
			awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
			assert.Len(t, slotsOf(t, store), 1)
			if name == "it does not stop" {
				answer(w, "True")
			}
			time.Sleep(10 * time.Minute)
			assert.Empty(t, slotsOf(t, store))
			require.Len(t, others(w), 1)
			assert.False(t, askedRecord(t, store).Idle.IsZero())
			refusesToFence(t, e)
		})
	}
}

// A remediator that was just told to stop, or whose object was just deleted, still works on its host: it
// keeps its slot until it has stopped, or for a few minutes. // I11
func TestRemediatorThatMustStopHasASlot(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world) func(*engine.Options)
		stops  func(*world)
	}{
		"its time is over": {func(w *world) func(*engine.Options) { return escalating(w, otherTemplate, thirdTemplate) }, func(*world) {}},
		"somebody deletes its object": {handingOver, func(w *world) {
			q := others(w)[0]
			q.Deleting = true
			w.Do(func(s *fake.State) { s.PutOther(&q) })
		}},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			running(t, w, store, c.change(w))
			askedAndBegun(t, w)
			c.stops(w)
			awaitAsked(t, w, "it must stop", func() bool { return others(w)[0].Deleting || !others(w)[0].TimedOut.IsZero() })
			for range 30 {
				time.Sleep(time.Second)
				require.Equal(t, []string{askedRecord(t, store).ID}, slotsOf(t, store))
			}
			time.Sleep(escalate.IgnoredAfter)
			assert.Empty(t, slotsOf(t, store))
			require.Len(t, others(w), 1)
		})
	}
}

// The next object of an escalation has its place again. // I11
func TestNextRemediatorHasASlotAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		running(t, w, store, escalating(w, otherTemplate, thirdTemplate))
		askedAndBegun(t, w)
		time.Sleep(10 * time.Minute)
		require.Empty(t, slotsOf(t, store))
		answer(w, "False")
		awaitAsked(t, w, "the second is asked", func() bool { return len(others(w)) == 1 && others(w)[0].Kind == "Replace" })
		time.Sleep(2 * time.Second)
		r := askedRecord(t, store)
		assert.Len(t, r.Objects, 2)
		assert.Equal(t, []string{r.ID}, slotsOf(t, store))
		w.Recover()
		time.Sleep(10 * time.Minute)
		assert.True(t, askedRecord(t, store).Recovered)
		assert.Empty(t, slotsOf(t, store))
	})
}

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
		e, events, _ := start(t, w, store, func(o *engine.Options) {
			change(o)
			o.Record = func(ev event.Event) error { audited = append(audited, ev.Message); return nil }
		})
		askedAndBegun(t, w)
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

		assert.Equal(t, "Reboot ns/m-1 of record "+id, accepted(t)(e.Abort(t.Context(), giveUp(id, true))).Asked)
		r := askedRecord(t, store)
		require.NotNil(t, r.GivenUp)
		assert.Equal(t, []string{"ada", "the remediator is gone"}, []string{r.GivenUp.Actor, r.GivenUp.Reason})
		assert.Contains(t, audited[len(audited)-1], "ada gives up Reboot ns/m-1 of record "+id+": the remediator is gone")
		assert.Equal(t, 1, heard(t, events, "ada gives up Reboot"))
		time.Sleep(5 * time.Minute)
		assert.Empty(t, slotsOf(t, store))
		assert.Len(t, others(w), 1, "it is left as it is, and no other is made beside it")
		refused(t, reason.NoRun)(e.Abort(t.Context(), giveUp(id, true)))

		w.changeCheck(func(c *policy.Check) { c.Evaluator = "" }) // else it asks again at once
		time.Sleep(time.Second)
		q := others(w)[0]
		w.Do(func(s *fake.State) { s.DropOther(&q) })
		time.Sleep(time.Second)
		accepted(t)(e.Fence(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "r", Role: wire.Admin}))
	})
}

// A record that is given up just before its object is made makes none: nobody would look after it. // I19, I22
func TestRecordGivenUpBeforeItsObjectIsMade(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var e *engine.Engine
		given, change := "", handingOver(w)
		e = running(t, w, store, func(o *engine.Options) {
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
		list := must.Do(escalate.Load(t.Context(), store))(t)
		require.Len(t, list, 2)
		for _, r := range list {
			assert.Equal(t, r.ID == given, r.GivenUp != nil)
			assert.False(t, r.Ended.IsZero())
		}
	})
}

// Where the object is known not to exist, no more is needed.
func TestPersonGivesUpARecordWithoutAnObject(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		q := others(w)[0]
		w.Do(func(s *fake.State) { s.DropOther(&q) })
		time.Sleep(10 * time.Second)
		require.True(t, askedRecord(t, store).Objects[0].Gone.IsZero(), "it is not believed yet")
		accepted(t)(e.Abort(t.Context(), giveUp(askedRecord(t, store).ID, false)))
	})
}

// A record that cannot be read is deleted then, and its target is free.
func TestPersonGivesUpARecordThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		spoilAsked(t, store, "asked c 9 n-1 - -")
		e := running(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		require.Empty(t, e.Runs("c"))
		refuses(t, e, store, giveUp("9", false), "cannot be read")
		accepted(t)(e.Abort(t.Context(), giveUp("9", true)))
		assert.Empty(t, must.Do(escalate.Load(t.Context(), store))(t))
		time.Sleep(10 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// Without the audit log nothing is given up. // I24
func TestRecordIsNotGivenUpWithoutTheAuditLog(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		spoilAsked(t, store, "asked c 9 n-1 - -")
		e := running(t, w, store, func(o *engine.Options) { o.Record = func(event.Event) error { return errors.New("disk full") } })
		time.Sleep(time.Minute)
		_, err := e.Abort(t.Context(), giveUp("9", true))
		require.ErrorContains(t, err, "disk full")
		assert.NotEmpty(t, askedRecord(t, store).Unreadable)
	})
}

// While the clocks differ, no time is over of what another remediator was asked: it is not told to stop, keeps its place, and what the limits of a
// day count is kept. Told once, it would never be asked again. // I11, I15, I16
func TestClockThatIsAheadEndsNoAskedRemediator(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change := escalating(w, otherTemplate, thirdTemplate)
		_, _, stop := start(t, w, store, change)
		askedAndBegun(t, w)
		time.Sleep(10 * time.Second)
		stop()
		w.setSkew(-3 * time.Hour)
		time.Sleep(3 * time.Hour) // by the API server a few seconds
		_, _, stop = start(t, w, store, change)
		time.Sleep(time.Minute)
		r := askedRecord(t, store)
		assert.True(t, others(w)[0].TimedOut.IsZero(), "it was told to stop")
		assert.True(t, r.Newest().TimedOut.IsZero())
		assert.True(t, r.Idle.IsZero())
		assert.Equal(t, []string{r.ID}, slotsOf(t, store))

		w.Recover()
		awaitAsked(t, w, "a recovery needs no clock", func() bool { return len(others(w)) == 0 && !askedRecord(t, store).Ended.IsZero() })
		stop()
		w.setSkew(-30 * time.Hour)
		time.Sleep(27 * time.Hour)
		running(t, w, store, change)
		time.Sleep(time.Minute)
		assert.Len(t, must.Do(escalate.Load(t.Context(), store))(t), 1)
		w.setSkew(0)
		time.Sleep(time.Minute)
		assert.Empty(t, must.Do(escalate.Load(t.Context(), store))(t))
	})
}
