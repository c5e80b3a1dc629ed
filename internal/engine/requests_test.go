package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
)

// responding has the engine only carry out what others request.
func responding(w *world) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Clusters[0].Mode, o.Clusters[0].Requests = guard.ModeRespond, w.Requests()
	}
}

// ask creates a FencedRemediation for the Machine of n-1.
func ask(w *world, change func(*policy.Request)) {
	w.Do(func(s *fake.State) { s.Ask("m-1", change) })
}

// asked returns the request of n-1, nil if it is gone, and what it was told last.
func asked(w *world) (q *policy.Request, told request.Status) {
	w.Do(func(s *fake.State) {
		if q = s.Asked["m-1"]; q != nil {
			c := *q
			q, told = &c, s.Told[q.UID]
		}
	})
	return q, told
}

func conditionOf(s request.Status, kind string) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// In mode respond fenced judges nothing itself: a host that is hung for an hour is fenced
// when its request comes, and not before. The request is held before the host is off, until
// the host is back, and it is told all of that.
func TestRespondCarriesOutARequestAndNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, responding(w))
		time.Sleep(time.Hour)
		require.Empty(t, e.Runs("c"))
		gate(t, e, reason.Observing)
		require.True(t, e.Status()[0].Armed, "a request may begin a run at any time")

		ask(w, nil)
		for !w.On() || len(w.Commands()) == 0 { // until it is off and on again
			time.Sleep(time.Second)
			if q, told := asked(w); !w.On() {
				require.True(t, q.Power.HasFinalizer, "the finalizer is on it while the host is off")
				require.Equal(t, remediate.PowerCycle, only(t, e).Strategy)
				require.Contains(t, []string{request.Pending, request.Running, ""}, told.Phase)
			}
		}
		time.Sleep(6 * time.Minute)
		r := stands(t, e, remediate.Done)
		assert.Equal(t, "FencedRemediation.fenced.io ns/m-1", r.CheckID)
		q, told := asked(w)
		assert.False(t, q.Power.HasFinalizer)
		assert.Equal(t, request.Succeeded, told.Phase)
		assert.Equal(t, []string{"False", "True", "False"}, []string{conditionOf(told, request.Processing),
			conditionOf(told, request.SucceededType), conditionOf(told, request.PermanentDeletion)})

		w.Hang() // the same request does not ask twice
		time.Sleep(time.Hour)
		assert.Len(t, e.Runs("c"), 1)
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		ask(w, nil)
		time.Sleep(10 * time.Minute)
		assert.Len(t, e.Runs("c"), 2, "a new one does")
	})
}

// Before the first command a deletion drops the run.
func TestDeletedRequestDropsItsRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		w.OnLook(func(looks int) {
			if looks == 2 { // the first of the run, after that of the probe
				w.Do(func(s *fake.State) { s.Withdraw("m-1") })
			}
		})
		e := running(t, w, store, responding(w))
		time.Sleep(2 * time.Minute)
		stands(t, e, remediate.Aborted, reason.Recovered)
		assert.Empty(t, w.Commands())
		q, _ := asked(w)
		assert.Nil(t, q, "nothing holds the request any more")
	})
}

// After it the host is brought back On before the request may go.
func TestDeletedRequestGoesWhenItsHostIsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		e := running(t, w, store, responding(w))
		await(t, func() bool { return !w.On() })
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		for q, _ := asked(w); q != nil; q, _ = asked(w) {
			require.Truef(t, w.On() || q.Power.HasFinalizer, "the request is held while the host is off")
			time.Sleep(100 * time.Millisecond)
		}
		assert.True(t, w.On())
		time.Sleep(6 * time.Minute)
		stands(t, e, remediate.Aborted, reason.Withdrawn)
		assert.Zero(t, w.Isolations())
	})
}

// What medik8s gives up on is not isolated: the host goes back On.
func TestTimedOutRequestStopsBeforeTheIsolation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		w.SetFault(fake.IgnoresOff)
		e := running(t, w, store, responding(w))
		time.Sleep(20 * time.Second)
		require.NotZero(t, w.Count(bmc.CommandOff))
		w.Do(func(s *fake.State) { s.ChangeRequest("m-1", func(q *policy.Request) { q.TimedOut = time.Now() }) })
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Aborted, reason.Contested)
		assert.Zero(t, w.Isolations())
		q, told := asked(w)
		assert.False(t, q.Power.HasFinalizer)
		assert.Equal(t, request.Failed, told.Phase)
		assert.Equal(t, "False", conditionOf(told, request.Processing))
		assert.Equal(t, "False", conditionOf(told, request.SucceededType), "the next template's turn")
	})
}

// If the gates refuse for longer than timeoutSeconds, the request says that it failed, and nothing
// begins any more. A request for a Node that is Ready asks for nothing.
func TestRequestThatIsRefusedOrRecovered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = true })
		ask(w, func(q *policy.Request) { q.Power.Timeout = 5 * time.Minute })
		e := running(t, w, store, responding(w))
		time.Sleep(4 * time.Minute)
		_, told := asked(w)
		assert.Equal(t, request.Pending, told.Phase)
		assert.Equal(t, "Unknown", conditionOf(told, request.SucceededType))
		assert.Equal(t, string(reason.Protected), told.Conditions[0].Reason)
		time.Sleep(2 * time.Minute)
		_, told = asked(w)
		assert.Equal(t, request.Failed, told.Phase)
		assert.Equal(t, "False", conditionOf(told, request.SucceededType))
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = false })
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))

		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		w.Recover()
		time.Sleep(time.Minute)
		ask(w, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		_, told = asked(w)
		assert.Equal(t, string(reason.Recovered), told.Conditions[1].Reason)
	})
}

// A new owner, and a daemon after a crash, carry on with the request of an open run.
func TestRequestSurvivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		_, _, stop := start(t, w, store, responding(w))
		await(t, func() bool { return !w.On() })
		stop()
		e := running(t, w, store, responding(w))
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		q, told := asked(w)
		assert.False(t, q.Power.HasFinalizer)
		assert.Equal(t, request.Succeeded, told.Phase)
	})
}

// annotate sets the annotation of OpenShift's health check on the Machine of n-1.
func annotate(w *world, on bool) {
	w.Do(func(s *fake.State) {
		s.ChangeMachine("n-1", func(m *policy.Machine) { m.ExternalRemediationRequested = on })
	})
}

func annotated(w *world) (is bool) {
	w.Do(func(s *fake.State) { is = s.Machines["n-1"].ExternalRemediationRequested })
	return is
}

// In mode respond the annotation on an OpenShift Machine is a request: carried out, taken off,
// and obeyed again when it is set again. On a Machine that has recovered it is taken off without
// a power command.
func TestRespondCarriesOutTheAnnotation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.DropCheck(s.Check) })
		annotate(w, true)
		e := running(t, w, store, responding(w))
		time.Sleep(6 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, "Machine.machine.openshift.io ns/m-1", only(t, e).CheckID)
		assert.False(t, annotated(w))

		time.Sleep(time.Hour)
		before := len(w.Commands())
		annotate(w, true) // its Node is Ready
		time.Sleep(time.Minute)
		assert.False(t, annotated(w), "a stale request is cleared")
		assert.Len(t, w.Commands(), before)

		w.Hang()
		annotate(w, true)
		time.Sleep(10 * time.Minute)
		assert.Len(t, e.Runs("c"), 2)
		assert.False(t, annotated(w))
	})
}

// Who sets the annotation of a healthy Machine again and again does not make fenced write as often.
// A request that is in earnest is carried out all the same. // I4
func TestStaleAnnotationIsClearedMoreAndMoreSeldom(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.DropCheck(s.Check) })
		w.Recover()
		e := running(t, w, store, responding(w))
		cleared := 0
		for range 60 * 60 {
			if !annotated(w) {
				cleared++
				annotate(w, true)
			}
			time.Sleep(time.Second)
		}
		assert.Greater(t, cleared, 10)
		assert.Less(t, cleared, 25, "every five minutes in the end")
		w.Hang()
		until(t, e, remediate.Done)
		assert.False(t, annotated(w))
		time.Sleep(20 * time.Minute)
		w.Do(func(s *fake.State) { require.Equal(t, "True", s.Nodes["n-1"].Ready) })
		annotate(w, true)
		time.Sleep(10 * time.Second)
		assert.False(t, annotated(w), "after a while without it, at once again")
	})
}

// An actuator that is alive carries out the annotation itself. // I22
func TestAnnotationIsLeftToALivingActuator(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.DropCheck(s.Check) })
		w.setContested(remediate.Yes)
		annotate(w, true)
		e := running(t, w, store, responding(w))
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		w.Recover()
		time.Sleep(10 * time.Minute)
		assert.True(t, annotated(w), "without the annotation the actuator would leave the host off")
	})
}

// A run that waits begins again only while its request asks for it.
func TestWaitingRunGoesOnWhileItIsRequested(t *testing.T) {
	for name, withdrawn := range map[string]bool{"still asked for": false, "withdrawn": true} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			ask(w, nil)
			w.SetFault(fake.IgnoresOff)
			e := running(t, w, store, func(o *engine.Options) {
				responding(w)(o)
				o.Run.RetryInterval = time.Minute
			})
			for len(e.Runs("c")) == 0 || only(t, e).Step != remediate.Waiting {
				time.Sleep(time.Second)
			}
			if withdrawn {
				w.Do(func(s *fake.State) { s.Withdraw("m-1") })
			}
			w.SetFault(fake.NoFault)
			sent := w.Count(bmc.CommandOff)
			time.Sleep(30 * time.Minute)
			r := only(t, e)
			if withdrawn {
				assert.Equal(t, sent, w.Count(bmc.CommandOff), "%s: %s", r.Step, r.Note)
			} else {
				assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
			}
		})
	}
}

// explain says of a request that came to nothing why, and not that its time has not come.
func TestRequestThatIsOverIsExplained(t *testing.T) {
	for code, over := range map[reason.Code]func(*policy.Request){
		reason.RequestTimeout: func(q *policy.Request) { q.TimedOut = time.Now() },
		reason.Deleting:       func(q *policy.Request) { q.Deleting = true },
	} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			ask(w, over)
			e := running(t, w, store, responding(w))
			time.Sleep(5 * time.Minute)
			require.Empty(t, e.Runs("c"))
			assert.Equal(t, "request", gate(t, e, code).Name)
		})
	}
}

// lateKind is a watch whose objects of one kind arrive later than everything else, while it is late.
type lateKind struct {
	admit.Watch
	kind string
	mu   sync.Mutex
	late time.Time // since when; zero: not
	held []policy.Change
}

func (l *lateKind) setLate(late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = time.Time{}
	if late {
		l.late = time.Now()
	}
}

func (l *lateKind) Changes() (list []policy.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append(l.held, l.Watch.Changes()...)
	l.held = nil
	for _, c := range all {
		if c.ID.Kind == l.kind && !l.late.IsZero() {
			l.held = append(l.held, c)
		} else {
			list = append(list, c)
		}
	}
	return list
}

func (l *lateKind) View() admit.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.Watch.View()
	if !l.late.IsZero() {
		v.Age = time.Since(l.late)
	}
	return v
}

// The watches of two kinds keep no order: a request may be seen while the view still shows the Node
// Ready. It is not told that its target has recovered, for then nobody would carry it out.
func TestRequestThatIsSeenBeforeItsNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		l := &lateKind{kind: "Node"}
		e := running(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			l.Watch = o.Clusters[0].Watch
			o.Clusters[0].Watch = l
		})
		time.Sleep(time.Minute)
		l.setLate(true)
		w.Hang()
		w.SetReady("Unknown")
		ask(w, nil)
		time.Sleep(30 * time.Second)
		_, told := asked(w)
		require.Empty(t, told.Phase, "nothing is known about the Node of that moment")
		l.setLate(false)
		w.SetReady("Unknown")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		_, told = asked(w)
		assert.Equal(t, request.Succeeded, told.Phase)
	})
}

// People pause fenced, and the run of a request is taken back. The Node is Ready, and fails again while the view grows old. Nobody is told by that
// view that the Node has recovered: the request would never be carried out. // I16
func TestOldViewAnswersNoRequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		l := &lateKind{kind: "Node"}
		e := running(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			l.Watch = o.Clusters[0].Watch
			o.Clusters[0].Watch = l
		})
		ask(w, nil)
		until(t, e, remediate.PowerOff)
		accepted(t)(e.Pause(t.Context(), byHand))
		until(t, e, remediate.Aborted)
		w.Recover()
		w.SetReady("True")
		time.Sleep(5 * time.Minute)
		l.setLate(true)
		w.Hang()
		w.SetReady("Unknown")
		time.Sleep(10 * time.Minute)
		accepted(t)(e.Resume(t.Context(), byHand))
		time.Sleep(10 * time.Minute)
		_, told := asked(w)
		require.NotEqual(t, request.Succeeded, told.Phase, "nothing is known about the Node of that moment")
		l.setLate(false)
		w.SetReady("Unknown")
		time.Sleep(30 * time.Minute)
		_, told = asked(w)
		assert.Equal(t, request.Succeeded, told.Phase)
		assert.Len(t, e.Runs("c"), 2)
	})
}

// A clock that is ahead ends no request, whose end would be for ever: the time in which its run must have begun is
// over by a clock that agrees with the API server's. // I16, I22
func TestClockThatIsAheadEndsNoRequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		made := func(at time.Time) func(q *policy.Request) {
			return func(q *policy.Request) { q.Created, q.Power.Timeout = at, 10*time.Minute }
		}
		ask(w, made(time.Now().Add(-2*time.Hour))) // a moment ago, by the API server
		w.setSkew(-2 * time.Hour)
		e := running(t, w, store, responding(w))
		time.Sleep(time.Minute)
		_, told := asked(w)
		assert.Equal(t, request.Pending, told.Phase)
		assert.Equal(t, string(reason.ClockSkew), told.Conditions[0].Reason)
		assert.Empty(t, e.Runs("c"))

		w.Do(func(s *fake.State) { s.ChangeRequest("m-1", made(time.Now())) })
		time.Sleep(10 * time.Second)
		w.setSkew(0)
		until(t, e, remediate.Done)
		time.Sleep(10 * time.Second)
		_, told = asked(w)
		assert.Equal(t, request.Succeeded, told.Phase)
	})
}
