package engine_test

import (
	"context"
	"errors"
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
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// withoutStatus writes to requests, but not their status while it fails.
type withoutStatus struct {
	engine.Requests
	fails *atomic.Bool
}

func (r withoutStatus) Report(ctx context.Context, q remediate.Request, s request.Status) error {
	if r.fails.Load() {
		return errors.New("the status cannot be written")
	}
	return r.Requests.Report(ctx, q, s)
}

// lostRun is a world whose host was switched off by a run that is lost: the daemon was killed before it wrote any
// phase, and its state is an older one.
func lostRun(t *testing.T, w *world, store *failingStore) {
	t.Helper()
	ask(w, nil)
	fails := &atomic.Bool{}
	fails.Store(true)
	_, _, stop := start(t, w, store, func(o *engine.Options) {
		responding(w)(o)
		o.Clusters[0].Requests = withoutStatus{w.Requests(), fails}
	})
	await(t, func() bool { return !w.On() })
	stop()
	q, _ := asked(w)
	require.True(t, q.Power.HasFinalizer)
	require.Empty(t, q.Power.Phase)
}

func lostRunEvents(t *testing.T, events *event.Stream) []event.Event {
	t.Helper()
	return eventsOf(t, events, func(ev event.Event) bool { return strings.Contains(ev.Message, "does not know the run") })
}

// A finalizer is the last trace of a run whose state was lost before it had written a phase. While the host may be off
// it stays, and people are told what to do. // I20
func TestFinalizerWithoutAPhaseOutlivesTheState(t *testing.T) {
	for name, over := range map[string]func(*world){
		"deleted":  func(w *world) { w.Do(func(s *fake.State) { s.Withdraw("m-1") }) },
		"given up": giveUpRequest,
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			lostRun(t, w, store)
			over(w)
			older := &failingStore{Store: openStore(t, t.TempDir())}
			for range 2 { // and through one more restart
				e, events, stop := start(t, w, older, responding(w))
				time.Sleep(10 * time.Minute)
				require.Empty(t, e.Runs("c"))
				q, told := asked(w)
				require.NotNil(t, q, "nothing else shows that the host is off")
				require.True(t, q.Power.HasFinalizer)
				require.Equal(t, []string{request.Held, "Unknown"}, []string{told.Phase, processing(w)})
				require.Contains(t, told.LastError, "see that it is on")
				require.Len(t, lostRunEvents(t, events), 1)
				stop()
			}
			running(t, w, older, responding(w))
			w.Recover() // a person switches the host on
			time.Sleep(time.Minute)
			if q, _ := asked(w); q != nil {
				assert.False(t, q.Power.HasFinalizer)
				assert.Equal(t, "False", processing(w))
			}
		})
	}
}

// Another machine that has taken the name of the Node, and is Ready, says nothing about the host that the lost run
// has switched off. // I20, I27
func TestNodeOfAnotherMachineReleasesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lostRun(t, w, store)
		w.Do(func(s *fake.State) {
			s.Withdraw("m-1")
			s.PutNode(fake.Node{Name: "n-1", BootID: "spare-boot-1", SystemUUID: spareUUID, Ready: "True", Since: time.Now()})
		})
		_, events, _ := start(t, w, &failingStore{Store: openStore(t, t.TempDir())}, responding(w))
		time.Sleep(10 * time.Minute)
		q, told := asked(w)
		require.NotNil(t, q, "nothing else shows that the host is off")
		assert.True(t, q.Power.HasFinalizer)
		assert.Equal(t, []string{request.Held, "Unknown"}, []string{told.Phase, processing(w)})
		assert.Len(t, lostRunEvents(t, events), 1)
	})
}

// The machine that has taken the name of the Node is not power-cycled for such a request, and that its BMC reads On ends nothing: what the
// finalizer stands for is another machine, which may be off. // I20, I27
func TestMachineThatTookTheNameIsNotThatOfTheLostRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lostRun(t, w, store)
		w.SetBMCUUID(spareUUID)
		w.Do(func(s *fake.State) {
			h := s.Host("n-1")
			h.On, h.NodeUUID, h.Kernel = true, spareUUID, fake.Hung
			s.PutNode(fake.Node{Name: "n-1", BootID: "spare-boot-1", SystemUUID: spareUUID, Ready: "Unknown", Since: time.Now()})
		})
		e := running(t, w, &failingStore{Store: openStore(t, t.TempDir())}, func(o *engine.Options) {
			responding(w)(o)
			o.LastChecks = func(string, string) []hosts.LastCheck {
				return []hosts.LastCheck{{At: time.Now(), LastOn: time.Now(), Power: bmc.On}}
			}
		})
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.TargetChanged).Value, "(system UUID "+hostUUID+"): see that the former one is on, then remove the finalizer")
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		time.Sleep(time.Minute)
		q, told := asked(w)
		require.NotNil(t, q, "nothing else shows that the host is off")
		assert.True(t, q.Power.HasFinalizer)
		assert.Equal(t, request.Held, told.Phase)
	})
}

// While the request asks, a new run brings the host back: nothing is lost.
func TestNewRunFollowsALostOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lostRun(t, w, store)
		e, events, _ := start(t, w, &failingStore{Store: openStore(t, t.TempDir())}, responding(w))
		until(t, e, remediate.Done)
		time.Sleep(10 * time.Second)
		q, told := asked(w)
		assert.False(t, q.Power.HasFinalizer)
		assert.Equal(t, request.Succeeded, told.Phase)
		assert.Empty(t, lostRunEvents(t, events))
	})
}

// A run that is dropped before it has touched the host says nothing about a lost one.
func TestDroppedRunAfterALostOneReleasesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lostRun(t, w, store)
		e := running(t, w, &failingStore{Store: openStore(t, t.TempDir())}, func(o *engine.Options) {
			responding(w)(o)
			before := w.Looks()
			w.OnLook(func(looks int) {
				if looks == before+2 { // the first of the run, after that of the probe
					w.Do(func(s *fake.State) { s.Withdraw("m-1") })
				}
			})
		})
		for len(e.Runs("c")) == 0 || only(t, e).Open() {
			time.Sleep(time.Second)
		}
		require.Equal(t, remediate.Aborted, only(t, e).Step)
		require.False(t, only(t, e).TouchedHost())
		time.Sleep(10 * time.Minute)
		require.False(t, w.On())
		q, told := asked(w)
		require.NotNil(t, q)
		assert.True(t, q.Power.HasFinalizer)
		assert.Equal(t, request.Held, told.Phase)
	})
}

// A run that could not start has switched nothing. The process that tried it knows, and lets the request go; another
// process does not know, and lets it go when the Node is Ready.
func TestRequestWhoseRunDidNotStartIsReleased(t *testing.T) {
	for name, restart := range map[string]bool{"at once": false, "after a restart, when the Node is Ready": true} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			full := func(o *engine.Options) { responding(w)(o); o.Record = slowFullDisk }
			ask(w, nil)
			e, events, stop := start(t, w, store, full)
			for q, _ := asked(w); q == nil || !q.Power.HasFinalizer; q, _ = asked(w) {
				time.Sleep(100 * time.Millisecond)
			}
			if restart {
				stop()
				e, events, _ = start(t, w, store, full)
			}
			w.Do(func(s *fake.State) { s.Withdraw("m-1") })
			time.Sleep(30 * time.Second)
			q, _ := asked(w)
			assert.Equal(t, restart, q != nil)
			if restart {
				assert.Len(t, lostRunEvents(t, events), 1)
				w.Recover()
				time.Sleep(30 * time.Second)
				q, _ = asked(w)
				assert.Nil(t, q)
			}
			assert.Empty(t, e.Runs("c"))
			assert.Zero(t, w.Count(bmc.CommandOff))
		})
	}
}

// A daemon that takes over, and knows the run, tells of no lost one.
func TestKnownRunIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lostRun(t, w, store)
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		e, events, _ := start(t, w, store, responding(w))
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, []string{string(remediate.Aborted), string(reason.Withdrawn)}, []string{string(r.Step), string(r.Reason)})
		q, _ := asked(w)
		assert.Nil(t, q)
		assert.True(t, w.On())
		assert.Empty(t, lostRunEvents(t, events))
		w.Do(func(s *fake.State) { assert.Empty(t, s.Asked) })
	})
}

// A backup may hold a run of the target that is older than the lost one: it has touched nothing, or has ended before
// that one, whatever time it has written. It says nothing about the host. // I20
func TestOlderRunInABackupReleasesNothing(t *testing.T) {
	for name, change := range map[string]func(r *remediate.Run, q *policy.Request){
		"of the request, and it was given up": func(r *remediate.Run, q *policy.Request) {
			r.Step, r.Reason, r.Ended, r.Request = remediate.Aborted, reason.Paused, time.Now(), &remediate.Request{Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, UID: q.UID}
		},
		"of a person, and it needs one": func(r *remediate.Run, _ *policy.Request) {
			r.Step, r.Reason, r.Manual = remediate.Held, reason.IdentityMismatch, &remediate.Order{Actor: "ada", Reason: "test", At: time.Now()}
		},
		"of a check, and its end was written by a clock that was ahead": func(r *remediate.Run, _ *policy.Request) {
			r.Step, r.Intervened, r.Ended = remediate.Done, true, time.Now().Add(5*time.Minute)
		},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			lostRun(t, w, store)
			runs := must.Do(state.LoadRuns(t.Context(), store))(t)
			q, _ := asked(w)
			older := remediate.Run{ID: "0-older", Target: runs[0].Target, Strategy: remediate.PowerCycle, Attempt: 1, Limits: runs[0].Limits, Started: time.Now()}
			change(&older, q)
			backup := &failingStore{Store: openStore(t, t.TempDir())}
			must.Do(state.SaveRun(t.Context(), backup, older))(t)
			w.Do(func(s *fake.State) { s.Withdraw("m-1") })
			running(t, w, backup, responding(w))
			time.Sleep(10 * time.Minute)
			require.False(t, w.On())
			q, _ = asked(w)
			require.NotNil(t, q, "nothing else shows that the host is off")
			assert.True(t, q.Power.HasFinalizer)
		})
	}
}

// A backup may hold the lost run itself, from before its first command. There it ends without a command: it says
// nothing about the host either. Where the BMC health check reads the host On since, nothing is left to bring back. // I20
func TestLostRunIsReleasedWhenItsHostReadsOn(t *testing.T) {
	for name, keep := range map[string]func(r *remediate.Run) bool{
		"the state was lost":                            func(*remediate.Run) bool { return false },
		"a backup has the run before its first command": func(r *remediate.Run) bool { r.Intervened, r.Intent = false, remediate.Intent{}; return true },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			lostRun(t, w, store)
			runs := must.Do(state.LoadRuns(t.Context(), store))(t)
			backup := &failingStore{Store: openStore(t, t.TempDir())}
			if r := runs[0]; keep(&r) {
				r.Step, r.Steps, r.OffLease, r.Version = remediate.PowerOff, r.Steps[:1], nil, 0
				must.Do(state.SaveRun(t.Context(), backup, r))(t)
			}
			w.Do(func(s *fake.State) { s.Withdraw("m-1") })
			on := hosts.LastCheck{Power: bmc.On, At: time.Now(), Identity: guard.IdentityMatches}
			last := []hosts.LastCheck{on}
			var mu sync.Mutex
			e := running(t, w, backup, func(o *engine.Options) {
				responding(w)(o)
				o.LastChecks = func(string, string) []hosts.LastCheck {
					mu.Lock()
					defer mu.Unlock()
					return last
				}
			})
			check := func(list ...hosts.LastCheck) {
				mu.Lock()
				last = list
				mu.Unlock()
				time.Sleep(time.Minute)
			}
			later := func(c hosts.LastCheck) hosts.LastCheck { c.At = time.Now().Add(time.Hour); return c }
			off := later(hosts.LastCheck{Power: bmc.Off, Identity: guard.IdentityMatches})
			for why, list := range map[string][]hosts.LastCheck{
				"read On before":           {on},
				"reads Off":                {off},
				"listed twice, On and Off": {later(on), off}, // while its host changes its Node
				"another machine's is On":  {later(hosts.LastCheck{Power: bmc.On, Identity: guard.IdentityDiffers})},
				"cannot be read":           {later(hosts.LastCheck{Reason: reason.OfBMC(string(bmc.KindUnreachable))})},
			} {
				check(list...)
				q, told := asked(w)
				require.NotNil(t, q, why)
				require.True(t, q.Power.HasFinalizer, why)
				require.Contains(t, told.LastError, "see that it is on", why)
			}
			check(hosts.LastCheck{Power: bmc.On, At: time.Now(), Identity: guard.IdentityMatches})
			q, _ := asked(w)
			assert.Nil(t, q, "its host is On")
			for _, r := range e.Runs("c") {
				assert.Equal(t, []any{remediate.Aborted, false}, []any{r.Step, r.TouchedHost()})
			}
		})
	}
}

// slowOff is a BMC, or a fence agent, that takes three seconds for Off. begins is called when the first Off is
// sent, done when it has taken effect.
type slowOff struct {
	bmc.Power
	once         *sync.Once
	begins, done func()
}

func (b slowOff) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if c != bmc.CommandOff {
		return b.Power.Send(ctx, c)
	}
	b.once.Do(b.begins)
	time.Sleep(3 * time.Second)
	r, err := b.Power.Send(ctx, c)
	b.done()
	return r, err
}

// giveUpRequest has the check of the request for n-1 give up on it.
func giveUpRequest(w *world) {
	w.Do(func(s *fake.State) { s.ChangeRequest("m-1", func(q *policy.Request) { q.TimedOut = time.Now() }) })
}

func processing(w *world) string { _, told := asked(w); return conditionOf(told, request.Processing) }

// NodeHealthCheck gives up on a request while fenced's Off is on its way. "Processing: False" says that this
// remediator does nothing any more, and the next one may begin. It must not be said while fenced still switches the
// host: not before the Off has taken effect, and not before the host is On again. // I22
func TestGivenUpRequestIsProcessedUntilTheHostIsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		var once sync.Once
		atOff := ""
		e := running(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			o.Open = func(bmc.Device) (bmc.Power, error) {
				return slowOff{w.bmc(), &once, func() { giveUpRequest(w) }, func() { atOff = processing(w) }}, nil
			}
		})
		await(t, func() bool { return !w.On() })
		assert.Equal(t, "True", atOff, "Processing when fenced's Off takes effect")
		off := 0
		for ; !w.On(); off++ {
			if !assert.Equal(t, "True", processing(w), "Processing while the host is off because of fenced, which is about to switch it on; after %d s", off) {
				break
			}
			time.Sleep(time.Second)
		}
		for only(t, e).Open() {
			require.Equal(t, "True", processing(w), "Processing until the end of the run is saved")
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		_, told := asked(w)
		assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
	})
}

// While the store takes nothing, the end of a run is not saved: whoever takes over would go on with it. // I19, I22
func TestGivenUpRequestIsProcessedUntilTheEndIsSaved(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		w.SetFault(fake.IgnoresOff)
		e := running(t, w, store, responding(w))
		await(t, func() bool { return w.Count(bmc.CommandOff) > 0 })
		giveUpRequest(w)
		store.set(true)
		for range 300 {
			time.Sleep(time.Second)
			require.NotEqual(t, "False", processing(w))
		}
		store.set(false)
		for only(t, e).Open() {
			require.NotEqual(t, "False", processing(w))
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		assert.Equal(t, "False", processing(w))
	})
}

// A request for which nothing has begun may begin a run at any moment. Once its check has given up on it, no run
// begins, and it says so at once. // I22
func TestGivenUpRequestWithoutARunIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = true })
		ask(w, nil)
		e := running(t, w, store, responding(w))
		time.Sleep(time.Minute)
		_, told := asked(w)
		assert.Equal(t, []string{request.Pending, "Unknown"}, []string{told.Phase, processing(w)})
		giveUpRequest(w)
		time.Sleep(5 * time.Second)
		_, told = asked(w)
		assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = false })
		time.Sleep(time.Hour)
		untouched(t, w, e)
	})
}

// A run that needs a person, and whose host may be off, says that another remediator may be asked, and not that fenced
// is done: it still brings the host back.
func TestHeldRunIsProcessedWhileItsHostMayBeOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		e, _, stop := start(t, w, store, responding(w))
		await(t, func() bool { return !w.On() })
		w.SetLeaseMoving(true)
		time.Sleep(3 * time.Minute)
		require.Equal(t, reason.FalseOff, only(t, e).Reason)
		q, told := asked(w)
		assert.True(t, q.Power.HasFinalizer)
		assert.Equal(t, []string{request.Held, "True", "False"}, []string{told.Phase, processing(w), conditionOf(told, request.SucceededType)})
		giveUpRequest(w)
		time.Sleep(time.Minute)
		assert.Equal(t, "True", processing(w))
		stop()
		require.Equal(t, remediate.Held, only(t, e).Step)
	})
}

// A request whose attempts are used up is over once its check gives up on it: the host is On, and nothing is switched
// without the request. The check must not wait for fenced for ever. // I22
func TestGivenUpRequestIsOverWhenTheAttemptsAreUsedUp(t *testing.T) {
	for name, over := range map[string]func(*world){
		"given up": giveUpRequest,
		"deleted":  func(w *world) { w.Do(func(s *fake.State) { s.Withdraw("m-1") }) },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			ask(w, nil)
			w.SetBootTime(never)
			e := running(t, w, store, func(o *engine.Options) {
				responding(w)(o)
				waiting(o)
				o.Run.MaxAttempts, o.Run.ReadyTimeout = 1, time.Minute
			})
			require.Equal(t, reason.AttemptsExhausted, until(t, e, remediate.Waiting).Reason)
			require.True(t, w.On())
			require.Equal(t, "True", processing(w))
			offs := w.Count(bmc.CommandOff)
			over(w)
			time.Sleep(time.Minute)
			if q, told := asked(w); q != nil {
				assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
			}
			time.Sleep(100 * time.Minute)
			assert.Equal(t, offs, w.Count(bmc.CommandOff))
		})
	}
}

// The same run keeps no later request waiting: the one for which it began is gone, so it goes on for a request that
// asks, and for no other. // I22
func TestLaterRequestIsOverBesideARestingRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		w.SetBootTime(never)
		e := running(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			waiting(o)
			o.Run.MaxAttempts, o.Run.ReadyTimeout = 1, time.Minute
		})
		until(t, e, remediate.Waiting)
		offs := w.Count(bmc.CommandOff)
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		time.Sleep(time.Minute)
		ask(w, nil)
		time.Sleep(time.Minute)
		require.Equal(t, "True", processing(w), "the run goes on for it")
		giveUpRequest(w)
		time.Sleep(time.Minute)
		q, told := asked(w)
		require.NotNil(t, q)
		assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
		time.Sleep(100 * time.Minute)
		assert.Equal(t, offs, w.Count(bmc.CommandOff))
		assert.True(t, only(t, e).Open())
	})
}

// So is one whose second attempt was taken back before the isolation, and whose host does not return. Its Node
// is there: a GitOps tool made it anew. // I22
func TestGivenUpRequestIsOverWhenALaterAttemptWasTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		w.SetBootTime(never)
		e := running(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			waiting(o)
			o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Run.MinPowerInterval = 2, time.Minute, time.Second
		})
		until(t, e, remediate.AwaitNode)
		w.SetFault(fake.IgnoresOff)
		w.Do(func(s *fake.State) { s.PutFromGit("n-1") })
		for w.Count(bmc.CommandOff) < 2 {
			time.Sleep(time.Second)
		}
		giveUpRequest(w)
		time.Sleep(time.Second)
		require.Equal(t, "True", processing(w))
		until(t, e, remediate.Waiting)
		require.True(t, w.On())
		offs := w.Count(bmc.CommandOff)
		time.Sleep(100 * time.Minute)
		require.True(t, only(t, e).Open())
		_, told := asked(w)
		assert.Equal(t, []string{request.Failed, "False"}, []string{told.Phase, processing(w)})
		assert.Equal(t, offs, w.Count(bmc.CommandOff))
	})
}
