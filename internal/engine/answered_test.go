package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
)

// A request that was told that nothing more is done fences no later failure: neither one that was
// made in advance, nor one that was carried out by a daemon whose state is lost.
func TestAnsweredRequestFencesNoLaterFailure(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Recover()
		ask(w, nil)
		e, _, stop := start(t, w, store, responding(w))
		time.Sleep(time.Minute)
		_, told := asked(w)
		require.Equal(t, request.Succeeded, told.Phase)
		w.Hang()
		time.Sleep(time.Hour)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, w.Commands())
		q, _ := asked(w)
		assert.Equal(t, request.Succeeded, q.Power.Phase, "nor is it told anything else")

		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		ask(w, nil)
		time.Sleep(10 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
		stop()

		sent := len(w.Commands())
		e, _, stop = start(t, w, &failingStore{Store: openStore(t, t.TempDir())}, responding(w))
		w.Hang()
		time.Sleep(time.Hour)
		assert.Empty(t, e.Runs("c"))
		assert.Len(t, w.Commands(), sent)
		stop()
	})
}

// At the last moment before the first command the request must still be for this target, and the
// Node must not be alive. // I2, I4
func TestRequestIsJudgedAtTheLastMoment(t *testing.T) {
	for name, change := range map[string]func(*world){
		"it has another owner": func(w *world) {
			w.Do(func(s *fake.State) {
				s.ChangeRequest("m-1", func(q *policy.Request) { q.Owners = []policy.Owner{{Kind: "Machine", Name: "m-2", UID: "m-m-2"}} })
			})
		},
		"it names another Node": func(w *world) {
			w.Do(func(s *fake.State) { s.ChangeRequest("m-1", func(q *policy.Request) { q.NodeName = "n-2" }) })
		},
		"the kubelet renews its Lease": func(w *world) {
			w.Do(func(s *fake.State) {
				l := s.Leases["n-1"]
				l.Renewed = time.Now()
				s.Leases["n-1"] = l
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				time.Sleep(time.Minute)
				ask(w, nil)
				w.OnLook(func(looks int) {
					if looks == 2 { // the first of the run, after that of the probe
						change(w)
					}
				})
				e, _, stop := start(t, w, store, responding(w))
				time.Sleep(50 * time.Second)
				require.NotEmpty(t, e.Runs("c"))
				assert.Empty(t, w.Commands())
				stop()
			})
		})
	}
}

// A request that cannot be held does not keep a check from acting.
func TestRequestThatCannotBeHeldLeavesItsTargetToTheChecks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.FinalizerFails = errors.New("forbidden") })
		ask(w, nil)
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Requests = w.Requests() })
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step)
		assert.Nil(t, r.Request)
		_, told := asked(w)
		assert.Equal(t, request.Succeeded, told.Phase)
		stop()
	})
}

// A request may ask for fewer power cycles than the administrator allows, not for more.
func TestRequestMayNotExceedTheAttempts(t *testing.T) {
	for asks, allowed := range map[int]int{0: 3, 2: 2, 1 << 31: 3} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			ask(w, func(q *policy.Request) { q.Power.Attempts = asks })
			e, _, stop := start(t, w, store, func(o *engine.Options) { responding(w)(o); o.Run.MaxAttempts = 3 })
			time.Sleep(10 * time.Second)
			assert.Equal(t, allowed, only(t, e).Limits.MaxAttempts)
			stop()
		})
	}
}

// If the state is lost while the host is off, the finalizer stays: it is the last trace of that host.
func TestFinalizerOutlivesTheState(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		_, _, stop := start(t, w, store, responding(w))
		for w.On() {
			time.Sleep(time.Second)
		}
		time.Sleep(3 * time.Second) // it is told of the run
		stop()
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		e, events, stop := start(t, w, &failingStore{Store: openStore(t, t.TempDir())}, responding(w))
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		q, told := asked(w)
		require.NotNil(t, q)
		assert.Equal(t, request.Held, told.Phase)
		assert.Equal(t, q.Power.Run, told.Run)
		w.Recover()
		time.Sleep(time.Minute)
		q, _ = asked(w)
		assert.Nil(t, q, "the host is up")
		stop()
		lost := eventsOf(t, events, func(ev event.Event) bool { return strings.Contains(ev.Message, "does not know the run") })
		assert.Len(t, lost, 1)
	})
}

// A request that is not for this cluster is left alone, whoever holds it: on a shared management
// API it is of another one.
func TestRequestOfAnotherClusterIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) {
			s.Ask("elsewhere", func(q *policy.Request) { q.Power.FinalizerElsewhere = true })
		})
		_, _, stop := start(t, w, store, responding(w))
		time.Sleep(5 * time.Minute)
		w.Do(func(s *fake.State) {
			assert.Empty(t, s.Told)
			assert.True(t, s.Asked["elsewhere"].Power.FinalizerElsewhere)
		})
		stop()
	})
}
