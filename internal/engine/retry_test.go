package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// bars keep a Held run where it is, whoever orders otherwise.
var bars = map[reason.Code]func(t *testing.T, w *world, e *engine.Engine){
	reason.Paused: func(t *testing.T, _ *world, e *engine.Engine) {
		accepted(t)(e.Pause(t.Context(), byHand))
	},
	reason.Hold: func(t *testing.T, _ *world, e *engine.Engine) {
		accepted(t)(e.Hold(t.Context(), byHand))
	},
	reason.Contested: func(_ *testing.T, w *world, _ *engine.Engine) {
		w.setContested(remediate.Yes)
	},
	reason.NotOwner: func(_ *testing.T, w *world, _ *engine.Engine) {
		w.setForeignHolder("fenced instance x holds the Lease")
		time.Sleep(6 * time.Second) // until it is announced again
	},
	reason.PowerOwner: func(_ *testing.T, w *world, _ *engine.Engine) {
		w.Do(func(s *fake.State) { s.PowerForbidden = "somebody else has it off" })
	},
}

// An order is refused before anything is saved if a gate would keep the run where it is.
// It works when that gate passes. // I22, I23
func TestOrdersForAHeldRunAreRefusedBeforeTheyAreSaved(t *testing.T) {
	orders := map[string]func(*engine.Engine, remediate.Run, *testing.T) error{
		"retry": func(e *engine.Engine, r remediate.Run, t *testing.T) error {
			_, err := e.Retry(t.Context(), ofRun(r))
			return err
		},
		"confirm-off": func(e *engine.Engine, _ remediate.Run, t *testing.T) error {
			_, err := e.ConfirmOff(t.Context(), byHand)
			return err
		},
	}
	for name, give := range orders {
		for code, bar := range bars {
			if code == reason.PowerOwner && name == "confirm-off" {
				continue // nobody's power is touched
			}
			scene(t, name+" "+string(code), func(t *testing.T, w *world, store *failingStore) {
				e := running(t, w, store, nil)
				until(t, e, remediate.PowerOff)
				w.dead()
				until(t, e, remediate.Held)
				bar(t, w, e)
				r := only(t, e)
				refusedFor(t, give(e, r, t), code)
				assert.Equal(t, r.Version, only(t, e).Version, "nothing is saved")
				time.Sleep(10 * time.Minute)
				assert.Equal(t, remediate.Held, only(t, e).Step)
				assert.Zero(t, w.Isolations())
			})
		}
	}
}

// A retry that would power-cycle a host for which nobody asks any more is refused: the run would
// rest again at once. Once somebody asks, it is carried out; and one that only brings the host back
// always is. // I4
func TestRetryOfARunThatNobodyAsksForIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		e := running(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts, o.Run.ReadyTimeout = 1, 2*time.Minute
		})
		r := until(t, e, remediate.Waiting)
		require.Equal(t, reason.AttemptsExhausted, r.Reason)
		w.pauseCheck()
		time.Sleep(time.Minute)
		before := only(t, e).Version
		assert.Contains(t, refused(t, reason.Withdrawn)(e.Retry(t.Context(), ofRun(r))), "paused")
		assert.Equal(t, before, only(t, e).Version, "nothing is saved")
		w.changeCheck(func(c *policy.Check) { c.Paused = false })
		time.Sleep(time.Minute)
		accepted(t)(e.Retry(t.Context(), ofRun(r)))
		until(t, e, remediate.AwaitNode)
		assert.Equal(t, 2, w.Count(bmc.CommandOff))

		w.pauseCheck()
		r = until(t, e, remediate.Waiting)
		require.Equal(t, reason.Withdrawn, r.Reason)
		accepted(t)(e.Retry(t.Context(), ofRun(r)))
		until(t, e, remediate.AwaitNode)
		assert.Equal(t, 2, w.Count(bmc.CommandOff))
	})
}

// A frozen host cannot be confirmed off, nor does a retry make its BMC trusted: it has falsely read Off before. // I5
func TestConfirmOffOfAFrozenHostIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		until(t, e, remediate.PowerOff)
		w.SetLeaseMoving(true)
		r := until(t, e, remediate.Held)
		require.Equal(t, "FalseOff", string(r.Reason))
		refused(t, reason.Frozen)(e.Retry(t.Context(), ofRun(r)))
		w.SetLeaseMoving(false)
		w.dead()
		_, err := e.ConfirmOff(t.Context(), byHand)
		refusedFor(t, err, reason.ConfirmedOffContradicted) // fenced has just seen a renewal
		time.Sleep(time.Minute)
		refused(t, reason.Frozen)(e.ConfirmOff(t.Context(), byHand))
		assert.Nil(t, only(t, e).Confirmed)
		assert.Zero(t, w.Isolations())
	})
}

// An instance that does not own the cluster accepts no order about a run, and reads no BMC
// for one. It names the owner. // I19
func TestOrdersAtAStandbyAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		p := newPair(t, w, store, nil)
		p.give("a")
		until(t, p.engine["a"], remediate.Held)
		time.Sleep(time.Minute)
		r := only(t, p.engine["b"])
		require.Equal(t, remediate.Held, r.Step)
		reads := w.Reads()
		for _, give := range []func(*engine.Engine) error{
			func(e *engine.Engine) error { _, err := e.Retry(t.Context(), ofRun(r)); return err },
			func(e *engine.Engine) error { _, err := e.Abort(t.Context(), ofRun(r)); return err },
			func(e *engine.Engine) error { _, err := e.Unfence(t.Context(), byHand); return err },
			func(e *engine.Engine) error { _, err := e.ConfirmOff(t.Context(), byHand); return err },
		} {
			err := give(p.engine["b"])
			refusedFor(t, err, reason.NotOwner)
			assert.Contains(t, err.Error(), "instance a owns the cluster")
		}
		assert.Equal(t, r.Version, only(t, p.engine["b"]).Version)
		assert.Equal(t, reads, w.Reads())
		assert.Nil(t, must.Do(state.GetRun(t.Context(), store, r.ID))(t).Retry)
		assert.Zero(t, w.Count(bmc.CommandOn))
	})
}

// waiting lets the runs of an engine wait, with a first pause of a minute.
func waiting(o *engine.Options) { o.Run.RetryInterval = time.Minute }

func waitingOnce(o *engine.Options) { o.Run.RetryInterval, o.Run.MaxAttempts = time.Minute, 1 }

// What heals ends the run by itself, with the Node Ready and whole. Nobody orders anything. // L5
func TestWaitingRunGoesOnByItself(t *testing.T) {
	for name, c := range map[string]struct {
		code   reason.Code
		from   remediate.Step // the step in which it breaks
		breaks func(*world)
		heal   func(*world)
	}{
		"the BMC is silent right after Off": {"BMCUnreachable", remediate.PowerOff,
			func(w *world) { w.FailReads(noAnswer()) }, func(w *world) { w.FailReads(nil) }},
		"the BMC refuses the account": {"BMCAuth", remediate.PowerOff,
			func(w *world) { w.FailReads(refusedAccount()) }, func(w *world) { w.FailReads(nil) }},
		"the rack has no power after the isolation": {reason.PowerOnFailed, remediate.PowerOn,
			func(w *world) { w.SetFault(fake.Hangs) }, func(w *world) { w.SetFault(fake.NoFault) }},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			e, events, _ := start(t, w, store, waiting)
			until(t, e, c.from)
			c.breaks(w)
			r := until(t, e, remediate.Waiting)
			assert.Equal(t, c.code, r.Reason)
			time.Sleep(20 * time.Minute)
			assert.Zero(t, len(eventsOf(t, events, func(ev event.Event) bool { return ev.Step == remediate.Held })), "nobody is called")
			c.heal(w)
			until(t, e, remediate.Done)
			assert.True(t, w.On())
			assert.Equal(t, 1, w.Isolations())
		})
	}
}

// A host that was repaired after the power cycles were used up gets its labels back when it
// registers, while the run still waits for its next try.
func TestRepairedHostIsTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		e := running(t, w, store, waitingOnce)
		time.Sleep(15 * time.Minute)
		r := stands(t, e, remediate.Waiting, reason.AttemptsExhausted)
		assert.WithinDuration(t, time.Now().Add(time.Hour), r.NextTry(), 15*time.Minute)
		w.SetBootTime(time.Minute)
		w.Do(func(s *fake.State) { // the repair
			s.Host("n-1").Power(false, "hand")
			s.Host("n-1").Power(true, "hand")
		})
		until(t, e, remediate.Done)
		assert.True(t, w.Restored())
		assert.Equal(t, 1, w.Isolations())
	})
}

// If nothing repairs the host, the run tries another power cycle by itself, ever more rarely.
func TestAttemptsAreTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		e := running(t, w, store, waitingOnce)
		time.Sleep(100 * time.Minute)
		r := stands(t, e, remediate.Waiting)
		assert.Equal(t, 2, r.Attempt)
		assert.Equal(t, 2, r.Wait.Count)
		w.SetBootTime(time.Minute)
		time.Sleep(4 * time.Hour)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// Every gate is asked again before step 1 begins again: the run waits while one refuses. // I4, I11, I22, I23
func TestWaitingRunAsksEveryGateAgain(t *testing.T) {
	for code, bar := range bars {
		scene(t, string(code), func(t *testing.T, w *world, store *failingStore) {
			w.SetFault(fake.IgnoresOff)
			e, events, _ := start(t, w, store, waiting)
			until(t, e, remediate.Waiting)
			bar(t, w, e)
			offs := w.Count(bmc.CommandOff)
			w.SetFault(fake.NoFault)
			time.Sleep(10 * time.Minute)
			assert.Equal(t, remediate.Waiting, only(t, e).Step)
			assert.Equal(t, offs, w.Count(bmc.CommandOff), "nothing is sent")
			assert.Zero(t, w.Isolations())
			refused := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Refused && ev.Run != "" })
			if code != reason.NotOwner { // it has no voice then
				require.NotEmpty(t, refused)
				assert.Equal(t, code, refused[0].Reason)
			}
		})
	}
}

// A target that is Ready again before its Node was isolated ends the run.
func TestTargetThatIsReadyAgainEndsTheWaitingRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e := running(t, w, store, waiting)
		until(t, e, remediate.Waiting)
		w.Recover()
		until(t, e, remediate.Aborted)
		assert.Zero(t, w.Isolations())
	})
}

// An unfence or an abort of a Waiting run holds: it is not fenced again. // I23
func TestUnfencedRunIsNotFencedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, waiting)
		until(t, e, remediate.PowerOff)
		w.dead()
		until(t, e, remediate.Waiting)
		accepted(t)(e.Hold(t.Context(), byHand))
		accepted(t)(e.Unfence(t.Context(), byHand))
		until(t, e, remediate.Waiting) // the BMC is silent, so the host cannot be brought back
		time.Sleep(time.Hour)
		offs := w.Count(bmc.CommandOff)
		w.FailReads(nil)
		r := until(t, e, remediate.Aborted)
		assert.Equal(t, reason.Unfenced, r.Reason)
		assert.True(t, w.On())
		assert.Equal(t, offs, w.Count(bmc.CommandOff))
	})
}

// A Waiting run has no slot, and waits for a free one before it begins again. // I11
func TestWaitingRunHasNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e := running(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Guards.MaxFencesPerDay = 2
		})
		until(t, e, remediate.Waiting)
		time.Sleep(2 * time.Second)
		assert.Empty(t, must.Do(state.LoadSlots(t.Context(), store))(t))
		time.Sleep(3 * time.Hour)
		r := stands(t, e, remediate.Waiting)
		assert.Len(t, r.Tries, 1, "an accepted Off counts as a run of the day") // I15
	})
}

// If a host does not come back, its Machine is deleted, once, and only where that is
// allowed and a controller replaces it. // I14
func TestMachineOfAHostThatStaysAwayIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		allowed, owned bool
		want           remediate.Step
		deprovisioned  []string
	}{
		"allowed":          {true, true, remediate.Reprovisioned, []string{"n-1"}},
		"not allowed":      {false, true, remediate.Held, nil},
		"nobody's Machine": {true, false, remediate.Held, nil},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			if c.owned {
				w.ownMachines()
			}
			w.SetBootTime(never)
			e := running(t, w, store, func(o *engine.Options) {
				o.Run.MaxAttempts, o.Clusters[0].Reprovision = 1, c.allowed
			})
			time.Sleep(90 * time.Minute)
			r := only(t, e)
			assert.Equal(t, c.want, r.Step, "%s: %s", r.Reason, r.Note)
			assert.Equal(t, c.deprovisioned, w.Deprovisioned())
			assert.Equal(t, c.deprovisioned == nil, w.On(), "a host is erased with its Machine, and with nothing else")
			assert.Zero(t, w.HandedOver())
		})
	}
}

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
		untouched(t, w, e)
		q, _ := asked(w)
		assert.Equal(t, request.Succeeded, q.Power.Phase, "nor is it told anything else")

		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		ask(w, nil)
		time.Sleep(10 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
		stop()

		sent := len(w.Commands())
		e = running(t, w, &failingStore{Store: openStore(t, t.TempDir())}, responding(w))
		w.Hang()
		time.Sleep(time.Hour)
		assert.Empty(t, e.Runs("c"))
		assert.Len(t, w.Commands(), sent)
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
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			time.Sleep(time.Minute)
			ask(w, nil)
			w.OnLook(func(looks int) {
				if looks == 2 { // the first of the run, after that of the probe
					change(w)
				}
			})
			e := running(t, w, store, responding(w))
			time.Sleep(50 * time.Second)
			require.NotEmpty(t, e.Runs("c"))
			assert.Empty(t, w.Commands())
		})
	}
}

// A request that cannot be held does not keep a check from acting.
func TestRequestThatCannotBeHeldLeavesItsTargetToTheChecks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.FinalizerFails = errors.New("forbidden") })
		ask(w, nil)
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Requests = w.Requests() })
		time.Sleep(10 * time.Minute)
		r := stands(t, e, remediate.Done)
		assert.Nil(t, r.Request)
		_, told := asked(w)
		assert.Equal(t, request.Succeeded, told.Phase)
	})
}

// A request may ask for fewer power cycles than the administrator allows, not for more.
func TestRequestMayNotExceedTheAttempts(t *testing.T) {
	for asks, allowed := range map[int]int{0: 3, 2: 2, 1 << 31: 3} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			ask(w, func(q *policy.Request) { q.Power.Attempts = asks })
			e := running(t, w, store, func(o *engine.Options) { responding(w)(o); o.Run.MaxAttempts = 3 })
			time.Sleep(10 * time.Second)
			assert.Equal(t, allowed, only(t, e).Limits.MaxAttempts)
		})
	}
}

// If the state is lost while the host is off, the finalizer stays: it is the last trace of that host.
func TestFinalizerOutlivesTheState(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		_, _, stop := start(t, w, store, responding(w))
		await(t, func() bool { return !w.On() })
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
		running(t, w, store, responding(w))
		time.Sleep(5 * time.Minute)
		w.Do(func(s *fake.State) {
			assert.Empty(t, s.Told)
			assert.True(t, s.Asked["elsewhere"].Power.FinalizerElsewhere)
		})
	})
}
