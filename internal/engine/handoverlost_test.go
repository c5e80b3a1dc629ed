package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
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
		"its kind is served no more": {true, fmt.Errorf("%w: Reboot", request.ErrNotServed), time.Minute},
		"another cluster answers":    {true, errors.New("it was made in another cluster"), 0},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
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
		})
	}
}

// That an object is missing counts only as long as each read says so: between two reads that fail
// it may have been there. // I22
func TestObjectThatIsMissingNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		running(t, w, store, handingOver(w))
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
	})
}

// A request whose creation was late may have lost its mark before fenced knew its UID: fenced was killed, and a person
// removed the mark. What has its name and no mark keeps everybody away until it is gone, and fenced leaves it alone. // I22
func TestUnknownObjectThatLostItsMark(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		asked := make(chan struct{})
		w.Do(func(s *fake.State) { s.OnHandover = func() error { close(asked); return errors.New("no answer") } })
		e := running(t, w, store, handingOver(w))
		<-asked
		newest := func() request.Object { return askedRecord(t, store).Objects[0] }
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
	})
}

// A remediator may take its time to let go of an object that fenced has deleted: that is told only
// when it takes long.
func TestDeletionThatTakesAWhileIsNoAlert(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, events, _ := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		q := others(w)[0]
		q.Begun, q.Finalizer, q.Deleting = true, true, true
		w.Do(func(s *fake.State) { s.PutOther(&q) })
		contested := func(ev event.Event) bool { return ev.Type == event.Failed && ev.Reason == reason.Contested }
		time.Sleep(escalate.IgnoredAfter - 30*time.Second)
		assert.Empty(t, eventsOf(t, events, contested))
		time.Sleep(time.Minute)
		assert.Len(t, eventsOf(t, events, contested), 1)
	})
}

// loses has the store give no answer to the next record.
func (s *muteStore) loses() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = 1
}

// A record that was stored without an answer is taken back: no object was made for it. Then the target
// is tried again, and no second record is left behind. // I19, L4
func TestFirstRemediatorAfterALostAnswerOfTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		mute := &muteStore{Store: store, kind: state.KindMeta}
		change := escalating(w, otherTemplate, thirdTemplate)
		w.setContested(remediate.Yes)
		e := running(t, w, mute, change)
		time.Sleep(2 * time.Minute)
		mute.loses()
		w.setContested(remediate.No)
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		assert.Equal(t, otherTemplate.Name, others(w)[0].TemplateName, "it is the first of the escalation")
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{askedRecord(t, store).ID}, slotsOf(t, store))
		refusesToFence(t, e)
	})
}

// That the answer was lost with which a request is known to be gone changes nothing either: the next
// remediator follows, although nothing else happens in the cluster. // L4
func TestNextRemediatorAfterALostAnswerAboutTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		mute := &muteStore{Store: store, kind: state.KindMeta}
		running(t, w, mute, escalating(w, otherTemplate, thirdTemplate))
		awaitAsked(t, w, "the first is asked", func() bool { return len(others(w)) == 1 })
		awaitAsked(t, w, "its request goes", func() bool { return len(others(w)) == 0 })
		mute.loses()
		awaitAsked(t, w, "the second is asked", func() bool { return len(others(w)) == 1 })
		assert.Equal(t, "Replace", others(w)[0].Kind)
	})
}

// The same for the next step of an escalation, whose record is stored already.
func TestNextRemediatorAfterALostAnswerOfTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		mute := &muteStore{Store: store, kind: state.KindMeta}
		e := running(t, w, mute, escalating(w, otherTemplate, thirdTemplate))
		awaitAsked(t, w, "the first is asked", func() bool { return len(others(w)) == 1 })
		w.setContested(remediate.Yes)
		awaitAsked(t, w, "its request goes", func() bool { return len(others(w)) == 0 })
		time.Sleep(2 * time.Minute) // until it is known to be gone
		mute.loses()
		w.setContested(remediate.No)
		awaitAsked(t, w, "the second is asked", func() bool { return len(others(w)) == 1 })
		assert.Equal(t, "Replace", others(w)[0].Kind)
		assert.Len(t, askedRecord(t, store).Objects, 2)
		refusesToFence(t, e)
	})
}

// spoilAsked stores a record of what another remediator was asked that cannot be read.
func spoilAsked(t *testing.T, store state.Store, key string) {
	t.Helper()
	must.Do(store.Put(t.Context(), state.Record{Kind: state.KindMeta, Key: key, Data: []byte("{")}))(t)
}

// Nobody acts on the target of a record that cannot be read, and it is told; everything else is
// fenced as before. // I20, I22
func TestRecordThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		key    string
		fenced bool
	}{
		"of the Node":                  {"asked c 9 n-1 - -", false},
		"of the Machine":               {"asked c 9 - ns m-1", false},
		"of another target":            {"asked c 9 other-0 ns other-0", true},
		"of another cluster":           {"asked d 9 n-1 ns m-1", true},
		"of nobody knows which target": {"asked 9", true},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			spoilAsked(t, store, c.key)
			e, events, _ := start(t, w, store, nil)
			time.Sleep(20 * time.Minute)
			assert.Equal(t, 1, heard(t, events, "what other remediators were asked cannot be read"))
			if c.fenced {
				assert.Equal(t, remediate.Done, only(t, e).Step)
			} else {
				assert.Empty(t, w.Commands())
				assert.Contains(t, gate(t, e, reason.UnderRemediation).Value, "record 9 asks for, which cannot be read")
				assert.Equal(t, 1, heard(t, events, "fencectl abort 9 --as-is"))
			}
		})
	}
}

// noMeta is a store that cannot list what other remediators were asked while it is told to.
type noMeta struct {
	*failingStore
	down *atomic.Bool
}

func (s noMeta) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if kind == state.KindMeta && s.down.Load() {
		return nil, errors.New("no answer")
	}
	return s.failingStore.List(ctx, kind)
}

// A standby knows the runs of the owner, also while it cannot read what other remediators were
// asked.
func TestStandbyFollowsRunsWithoutRecords(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		down := &atomic.Bool{}
		e := running(t, w, noMeta{store, down}, func(o *engine.Options) { o.Instance, o.Owners = "a", newDeed().heir("a", store) })
		down.Store(true)
		must.Do(state.SaveRun(t.Context(), store, remediate.Run{ID: "r-1", Step: remediate.Held, Target: remediate.Target{Cluster: "c", Node: "n-1"}}))(t)
		store.syncChanges()
		assert.Len(t, e.Runs("c"), 1)
	})
}

// busyHandovers are of objects that change each time before they are deleted.
type busyHandovers struct {
	escalate.Objects
	busy *atomic.Bool
}

func (b busyHandovers) Delete(ctx context.Context, o request.Object, live *policy.Request) (wrote bool, err error) {
	if b.busy.Load() {
		return false, nil
	}
	return b.Objects.Delete(ctx, o, live)
}

// The audit log says what was done, not what was tried on an object that has changed meanwhile. // I24
func TestOnlyWhatWasWrittenIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		busy, change := &atomic.Bool{}, handingOver(w)
		busy.Store(true)
		_, events, _ := start(t, w, store, func(o *engine.Options) {
			change(o)
			askedBy(o, func(made escalate.Objects) escalate.Objects { return busyHandovers{made, busy} })
		})
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		w.Recover()
		time.Sleep(5 * time.Minute)
		deleted := func() int {
			return len(eventsOf(t, events, func(ev event.Event) bool {
				return ev.Type == event.Requested && strings.HasPrefix(ev.Message, "delete ")
			}))
		}
		assert.Zero(t, deleted(), "the object exists")
		busy.Store(false)
		awaitAsked(t, w, "it is deleted", func() bool { return len(others(w)) == 0 })
		assert.Equal(t, 1, deleted())
	})
}

// slowAnswers is a store that refuses the record that a person gives up, and whose next list of records
// comes late.
type slowAnswers struct {
	state.Store
	refuses, late atomic.Bool
}

func (s *slowAnswers) Put(ctx context.Context, r state.Record) (uint64, error) {
	if r.Kind == state.KindMeta && strings.Contains(string(r.Data), "givenUp") && s.refuses.Load() {
		s.late.Store(true)
		return 0, errors.New("no answer")
	}
	return s.Store.Put(ctx, r)
}

func (s *slowAnswers) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	list, err := s.Store.List(ctx, kind)
	if kind == state.KindMeta && s.late.CompareAndSwap(true, false) {
		time.Sleep(30 * time.Second)
	}
	return list, err
}

// What is read again after an order that failed is never older than what is written meanwhile: fenced
// forgets no object that it makes. // I19, I22
func TestRecordMadeWhileAnotherIsReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		slow := &slowAnswers{Store: store}
		change := handingOver(w)
		e := running(t, w, slow, change)
		askedAndBegun(t, w)
		time.Sleep(time.Minute)
		first := askedRecord(t, store).ID
		w.setContested(remediate.Yes)
		w.setOthersDown(true)
		time.Sleep(5 * time.Minute)
		require.Len(t, others(w), 1)
		slow.refuses.Store(true)
		done := make(chan error)
		go func() { _, err := e.Abort(t.Context(), giveUp(first, true)); done <- err }()
		w.setContested(remediate.No)
		assert.Error(t, <-done)
		for range 600 {
			if len(others(w)) == 2 {
				break
			}
			time.Sleep(time.Second)
		}
		require.Len(t, others(w), 2)
		answer(w, "False")
		w.Recover()
		w.setOthersDown(false)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, others(w), "both are looked after")
	})
}

// The Node fails again before the check's delay after its recovery is over, and the Nodes cannot be watched any more. The old view does not show
// that, so the object of a remediator that is at work is not deleted. // I16, I22
func TestOldViewEndsNoAskedRemediator(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		l := &lateKind{kind: "Node"}
		options := handingOver(w)
		w.changeCheck(func(c *policy.Check) { c.HealthyDelay = 10 * time.Minute })
		running(t, w, store, func(o *engine.Options) {
			options(o)
			l.Watch = o.Clusters[0].Watch
			o.Clusters[0].Watch = l
		})
		time.Sleep(2 * time.Minute)
		require.Len(t, others(w), 1)
		answer(w, "True")
		w.Recover()
		time.Sleep(time.Minute)
		require.False(t, others(w)[0].HealthyDelaySince.IsZero())
		l.setLate(true)
		w.Hang()
		w.SetReady("Unknown")
		time.Sleep(time.Hour)
		require.Len(t, others(w), 1)
		l.setLate(false)
		w.SetReady("Unknown")
		time.Sleep(time.Hour)
		require.Len(t, others(w), 1)
	})
}
