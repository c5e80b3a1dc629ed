package engine_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// The API is lost between Off and the isolation: after its time limit the run powers the
// host on, and stays open until the Node was read again.
func TestAPILostAfterOffBringsTheHostBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, slowProof)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.takeAPIDown()
		time.Sleep(10 * time.Minute)
		assert.True(t, w.On())
		assert.True(t, only(t, e).Open(), "it may have been deleted after all")
		w.SetReady("True")
		w.bringAPIUp()
		time.Sleep(5 * time.Minute)
		stands(t, e, remediate.Aborted, "APIUnreachable")
		assert.Zero(t, w.Isolations())
	})
}

// The answer to the deletion is lost with the API. When the API returns, the Node is found
// gone, and its labels and taints are restored.
func TestDeletionWithALostAnswerIsCompleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.DownAtIsolation = true })
		e := running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, w.Isolations())
		assert.True(t, w.On())
		w.bringAPIUp()
		time.Sleep(5 * time.Minute)
		stands(t, e, remediate.Done)
		assert.True(t, w.Restored())
		assert.Equal(t, 1, w.Isolations())
	})
}

// The BMC network is lost after Off was sent, and there is no other level: nothing is
// deleted without a reading.
func TestBMCNetworkLostIsHeldAndNothingIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, slowProof)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.FailReads(noAnswer())
		time.Sleep(20 * time.Minute)
		stands(t, e, remediate.Held)
		assert.Zero(t, w.Isolations())
		w.FailReads(nil)
		time.Sleep(5 * time.Minute)
		assert.True(t, w.On(), "it is brought back once its BMC answers")
	})
}

// The owner loses the store during a run: it sends nothing after the end of its claim and
// starts nothing, and the next owner completes the run. // I19
func TestStoreLostInMidRun(t *testing.T) {
	for at := 60; at <= 70; at += 2 {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			p := newPair(t, w, store, nil)
			p.give("a")
			time.Sleep(time.Duration(at) * time.Second)
			p.store["a"].set(true)
			p.expire("a", time.Now().Add(9*time.Second))
			time.Sleep(9 * time.Second)
			sent, deleted := len(w.Commands()), w.Isolations()
			time.Sleep(20 * time.Second)
			require.Len(t, w.Commands(), sent)
			require.Equal(t, deleted, w.Isolations())
			p.take("a")
			p.give("b")
			time.Sleep(3 * time.Minute)
			r := p.engine["b"].Runs("c")[0]
			assert.Equal(t, remediate.Done, r.Step, "lost after %ds: %s %s", at, r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations())
		})
	}
}

// When the API returns after an outage, heartbeats were missed on every Node. The quiet
// period lets them return before a Node is evaluated. // I16
func TestOutageEndsInAQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e := running(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		time.Sleep(10 * time.Minute)
		w.takeAPIDown()
		time.Sleep(5 * time.Minute)
		w.SetReadySince("Unknown", time.Now().Add(-4*time.Minute))
		w.setOthersDown(true)
		w.bringAPIUp()
		time.Sleep(4 * time.Minute)
		g := gate(t, e, reason.QuietPeriod)
		assert.False(t, g.Pass)
		w.Recover()
		w.setOthersDown(false)
		time.Sleep(10 * time.Minute)
		untouched(t, w, e)
	})
}

// While this daemon itself is cut off, its view gets older, and no Node is fenced, however
// long that takes. // I16
func TestOwnPartitionNeverFences(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		time.Sleep(30 * time.Second) // the check's minute runs
		w.takeAPIDown()
		time.Sleep(time.Hour)
		untouched(t, w, e)
		assert.False(t, gate(t, e, reason.ViewStale).Pass)
	})
}

// A host does not come back after its power cycle, so its run waits for the next try. A person
// has a spare machine take over the name of the Node. Later the kubelet of the spare machine dies,
// while its pods run on. The run's next try proves the former machine off: that says nothing about
// the spare one, whose Node must not be isolated. // I1, I8, I27
func TestSpareMachineWithTheNameIsNotIsolated(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		e := running(t, w, store, waitingOnce)
		time.Sleep(15 * time.Minute)
		stands(t, e, remediate.Waiting, reason.AttemptsExhausted)
		require.Equal(t, 1, w.Isolations())

		var isolated []string // the machines whose Nodes fenced deletes
		w.Do(func(s *fake.State) {
			s.OnIsolate = func(n *fake.Node, _ remediate.Run, _ remediate.Backup) { isolated = append(isolated, n.SystemUUID) }
			s.PutNode(fake.Node{Name: "n-1", BootID: "spare-boot-1", SystemUUID: spareUUID, Labels: map[string]string{"rack": "r1"}, Ready: "True", Since: time.Now()})
			s.Leases["n-1"] = fake.Lease{Version: 100000, Renewed: time.Now()}
		})
		time.Sleep(10 * time.Minute)
		w.SetReady("Unknown") // its kubelet is dead; its pods run on
		offs := w.Count(bmc.CommandOff)
		time.Sleep(100 * time.Minute)
		assert.Equal(t, offs, w.Count(bmc.CommandOff), "the machine that was switched off is not that of the Node")
		assert.Empty(t, isolated, "the Node of a machine that runs was deleted")
	})
}

// goneOver gives the Node to another machine, whose kubelet is dead by now.
func goneOver(s *fake.State) {
	s.PutNode(fake.Node{Name: "n-1", BootID: "spare-boot-1", SystemUUID: spareUUID, Labels: map[string]string{"rack": "r1"}, Ready: "Unknown", Since: time.Now()})
}

// A run waits, and what it was decided on goes. When its pause is over, it must not go on with what has the
// name by now. // I2, I27
func TestWaitingRunDoesNothingToWhatTookItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fake.State)
		ends   remediate.Step
		cuts   bool
	}{
		"nothing changed": {func(*fake.State) {}, remediate.Waiting, true},
		"another machine": {goneOver, remediate.Waiting, false},
		"no Machine":      {func(s *fake.State) { s.RemoveMachine("n-1") }, remediate.Reprovisioned, false},
		"another host":    {func(s *fake.State) { s.ChangeMetal("h-1", func(h *policy.Host) { h.UID = "another" }) }, remediate.Waiting, false},
		"another cluster": {func(s *fake.State) { s.UID = "another" }, remediate.Waiting, false},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			newMetal(w).set("h-1", func(h *policy.Host) { h.ConsumerRef, h.ConsumerKind = "ns/m-1", "Machine.machine.openshift.io" })
			w.SetBootTime(never)
			e := running(t, w, store, waitingOnce)
			time.Sleep(20 * time.Minute)
			r := stands(t, e, remediate.Waiting, reason.AttemptsExhausted)
			offs := w.Count(bmc.CommandOff)
			w.Do(c.change)
			time.Sleep(100 * time.Minute)
			assert.Equal(t, c.cuts, w.Count(bmc.CommandOff) > offs, "the host is switched off again")
			assert.Equal(t, 1, w.Isolations())
			if r = only(t, e); !c.cuts {
				assert.Equal(t, c.ends, r.Step, "%s: %s", r.Reason, r.Note)
			}
		})
	}
}

// The same before the isolation: the BMC was silent after the first Off, and while the run waits, the disks go to
// another chassis. // I2, I27
func TestDisksThatMovedAreNotIsolated(t *testing.T) {
	for _, moved := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.SetBootTime(never)
			e := running(t, w, store, waiting)
			until(t, e, remediate.PowerOff)
			w.FailReads(noAnswer())
			r := until(t, e, remediate.Waiting)
			offs := w.Count(bmc.CommandOff)
			if moved {
				w.Do(func(s *fake.State) {
					s.ChangeNode("n-1", func(n *fake.Node) { n.SystemUUID, n.BootID = spareUUID, "spare-boot-1" })
				})
				refused(t, reason.TargetChanged)(e.ConfirmOff(t.Context(), byHand))
				refused(t, reason.TargetChanged)(e.Retry(t.Context(), ofRun(r)))
			}
			w.FailReads(nil)
			time.Sleep(time.Hour)
			assert.Equal(t, moved, w.Count(bmc.CommandOff) == offs)
			assert.Equal(t, moved, w.Isolations() == 0)
			assert.True(t, w.On())
		})
	}
}

// The same run ends when what it was decided on is gone, and its host is On: it would wait for ever, and whatever has
// the name by now could not be fenced. // L1, L5
func TestWaitingRunEndsWhenItsTargetIsReplaced(t *testing.T) {
	for name, change := range map[string]func(*fake.State){
		"another machine": goneOver,
		"no Machine":      func(s *fake.State) { s.RemoveMachine("n-1") },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.SetBootTime(never)
			e := running(t, w, store, waiting)
			until(t, e, remediate.PowerOff)
			w.FailReads(noAnswer())
			until(t, e, remediate.Waiting)
			w.FailReads(nil)
			w.Do(change)
			time.Sleep(time.Hour)
			stands(t, e, remediate.Aborted, reason.TargetChanged)
			assert.True(t, w.On())
			assert.Zero(t, w.Isolations())
		})
	}
}

// hosts.d alone named the host when the run began. Since then a BareMetalHost has become the owner of its power, which
// would switch it on again: without a power lock there, the host is not switched off. // I2, I27
func TestBareMetalHostThatHasAppearedIsNotPassedOver(t *testing.T) {
	for _, appears := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.SetBootTime(never)
			e := running(t, w, store, waitingOnce)
			time.Sleep(15 * time.Minute)
			r := only(t, e)
			require.Equal(t, reason.AttemptsExhausted, r.Reason)
			require.Empty(t, r.Target.BareMetalHost)
			if appears {
				m := metal{w}
				m.set("h-1", func(h *policy.Host) { h.ConsumerRef, h.ConsumerKind = "ns/m-1", "Machine.machine.openshift.io" })
				m.use("h-1")
				time.Sleep(time.Second)
				refused(t, reason.TargetChanged)(e.Retry(t.Context(), ofRun(r)))
			}
			offs := w.Count(bmc.CommandOff)
			time.Sleep(100 * time.Minute)
			assert.Equal(t, appears, w.Count(bmc.CommandOff) == offs)
		})
	}
}

// lid is that of the computer which fenced runs on. While it is closed no time passes for
// the daemon, and all for the world.
type lid struct{ closed atomic.Int64 }

func (l *lid) suspended() time.Duration  { return time.Duration(l.closed.Load()) }
func (l *lid) suspend(by time.Duration)  { l.closed.Add(int64(by)) }
func (l *lid) options(o *engine.Options) { o.Suspended = l.suspended }
func isolatesOnce(t *testing.T, w *world, e *engine.Engine) {
	t.Helper()
	time.Sleep(10 * time.Minute)
	stands(t, e, remediate.Done)
	assert.Equal(t, 1, w.Isolations())
	assert.Equal(t, 2, w.Count(bmc.CommandOff), "Off was forgotten with its session")
	assert.True(t, w.Ready())
}

// The first view of a daemon after a suspend is older than it seems. As after an outage, a
// quiet period begins, and the view must be proven again. // I16
func TestSuspendEndsInAQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		var l lid
		e, events, _ := start(t, w, store, func(o *engine.Options) {
			l.options(o)
			o.Guards.QuietPeriod = 5 * time.Minute
		})
		time.Sleep(10 * time.Minute)
		w.SetReadySince("Unknown", time.Now().Add(-4*time.Minute))
		l.suspend(4 * time.Minute)
		time.Sleep(5*time.Minute - time.Second)
		assert.False(t, gate(t, e, reason.QuietPeriod).Pass)
		assert.Empty(t, e.Runs("c"))
		assert.Zero(t, w.Count(bmc.CommandOff))
		var told []string
		for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.ViewChanged || ev.Type == event.OwnerChanged }) {
			told = append(told, ev.Message)
		}
		assert.Contains(t, told, "not synced yet; this host was suspended for 4m0s")
		assert.Contains(t, told, "this host was suspended for 4m0s: the state is read again")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// A very short suspend is ignored.
func TestShortSuspendIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var l lid
		e, events, stop := start(t, w, store, l.options)
		for range 3 {
			time.Sleep(10 * time.Second)
			l.suspend(300 * time.Millisecond)
		}
		assert.Len(t, eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.OwnerChanged }), 1, "it owns the cluster")
		stop()
		assert.Empty(t, e.Runs("c"))
	})
}

// A reading from before a suspend proves nothing after it: the host may have been powered
// on and off meanwhile. // I1
func TestSuspendVoidsTheProof(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 2900 * time.Millisecond} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			var l lid
			e := running(t, w, store, l.options)
			await(t, func() bool { return w.Count(bmc.CommandOff) > 0 })
			time.Sleep(after)
			require.Zero(t, w.Isolations())
			l.suspend(time.Hour)
			isolatesOnce(t, w, e)
		})
	}
}

// An action that is running when the host is suspended is cancelled when the host wakes
// up. // I1, I19
func TestSuspendCancelsWhatIsRunning(t *testing.T) {
	scene(t, "isolation", func(t *testing.T, w *world, store *failingStore) {
		var l lid
		k := &deadWebhook{Kube: w, wait: 20 * time.Second, begun: func() { l.suspend(time.Hour) }}
		e := running(t, w, store, func(o *engine.Options) {
			l.options(o)
			o.Clusters[0].Kube = k
		})
		isolatesOnce(t, w, e)
		assert.Equal(t, int32(1), k.cutOff.Load())
	})
	scene(t, "command", func(t *testing.T, w *world, store *failingStore) {
		var l lid
		took := make(chan time.Duration, 10)
		running(t, w, store, func(o *engine.Options) {
			l.options(o)
			o.Open = func(bmc.Device) (bmc.Power, error) { return slowPower{w.bmc(), took, time.Hour}, nil }
		})
		time.Sleep(untilOff)
		l.suspend(time.Hour)
		time.Sleep(2 * time.Second)
		require.Len(t, took, 1)
		assert.Less(t, <-took, 5*time.Second, "else it may take ten")
	})
}

// oldWatch is a watch whose connection is dead: what it has was proven that long ago. Nor
// did it tell the time.
type oldWatch struct {
	admit.Watch
	proven  atomic.Pointer[time.Time] // nil: now
	noClock bool
}

func (o *oldWatch) View() admit.View {
	v := o.Watch.View()
	if at := o.proven.Load(); at != nil {
		v.Age = time.Since(*at)
	}
	v.SkewKnown = v.SkewKnown && !o.noClock
	return v
}

// A check that was seen before a suspend does not justify an open run: it may have been
// paused since. // I4, I16
func TestViewFromBeforeASuspendJustifiesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var l lid
		old := &oldWatch{}
		e := running(t, w, store, func(o *engine.Options) {
			l.options(o)
			old.Watch = o.Clusters[0].Watch
			o.Clusters[0].Watch = old
			o.Record = func(ev event.Event) error {
				if now := time.Now(); ev.Type == event.Started {
					old.proven.Store(&now)
					l.suspend(12 * time.Hour)
				}
				return nil
			}
		})
		time.Sleep(80 * time.Second)
		assert.Equal(t, remediate.PowerOff, only(t, e).Step)
		assert.Zero(t, w.Count(bmc.CommandOff))
		old.proven.Store(nil)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
	})
}

// One kind cannot be watched any more, while the API server answers every read of a single object. Nobody can say then whether the host works
// under another name, or whether somebody still asks for the run: no power is cut again, and no Machine is deleted. // I4, I6, I14, I16
func TestOpenRunIsNotCarriedOnByAnOldView(t *testing.T) {
	for name, c := range map[string]struct {
		kind   string
		change func(*world)
		step   remediate.Step
		why    reason.Code
	}{
		"the host works under another name": {"Node", func(w *world) { w.show("n-new", "boot-2", "True", time.Now()) }, remediate.Held, reason.NodeRenamed},
		"the check is deleted":              {policy.MachineHealthCheckKind, func(w *world) { w.Do(func(s *fake.State) { s.DropCheck(s.Check) }) }, remediate.Waiting, reason.Withdrawn},
	} {
		for _, attempts := range []int{1, 3} {
			scene(t, fmt.Sprint(name, ", ", attempts), func(t *testing.T, w *world, store *failingStore) {
				w.ownMachines()
				w.SetBootTime(never)
				l := &lateKind{kind: c.kind}
				e := running(t, w, store, func(o *engine.Options) {
					waiting(o)
					o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Clusters[0].Reprovision = attempts, 5*time.Minute, true
					l.Watch = o.Clusters[0].Watch
					o.Clusters[0].Watch = l
				})
				until(t, e, remediate.AwaitNode)
				l.setLate(true)
				c.change(w)
				time.Sleep(time.Hour)
				require.True(t, only(t, e).Open())
				require.Equal(t, 1, w.Count(bmc.CommandOff))
				require.Empty(t, w.Deprovisioned())
				l.setLate(false)
				w.setOthersDown(true) // the next change is seen
				time.Sleep(90 * time.Minute)
				stands(t, e, c.step, c.why)
				assert.Equal(t, 1, w.Count(bmc.CommandOff))
				assert.Empty(t, w.Deprovisioned())
			})
		}
	}
}

// The view is current again, and the deciding loop has not taken it in yet: what it last took in answers nothing. // I14, I16
func TestOpenRunWaitsUntilTheViewIsTakenIn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		from, till := make(chan struct{}), make(chan struct{})
		takeIn := sync.OnceFunc(func() { close(till) })
		defer takeIn()
		e := running(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts, o.Run.ReadyTimeout = 3, 5*time.Minute
			o.Clusters[0].Watch = hangingWatch{o.Clusters[0].Watch, from, till}
		})
		until(t, e, remediate.AwaitNode)
		close(from)
		w.show("n-new", "boot-2", "True", time.Now())
		time.Sleep(time.Hour)
		require.True(t, only(t, e).Open())
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		takeIn()
		time.Sleep(90 * time.Minute)
		stands(t, e, remediate.Held, reason.NodeRenamed)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
	})
}

// The BMC does not answer when the isolated host is to be switched on, and the view grows old: step 6 waits for it. The host is not left off for that:
// once its time is over, the run goes on at step 3. // I16, I20
func TestOldViewLeavesNoHostOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		l := &lateKind{kind: "Node"}
		e := running(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Clusters[0].Reprovision = true
			l.Watch = o.Clusters[0].Watch
			o.Clusters[0].Watch = l
		})
		until(t, e, remediate.PowerOn)
		w.SetFault(fake.Hangs)
		l.setLate(true)
		time.Sleep(30 * time.Minute)
		require.Equal(t, remediate.Reprovision, only(t, e).Step)
		require.False(t, w.On())
		w.SetFault(fake.NoFault)
		time.Sleep(3 * time.Hour)
		stands(t, e, remediate.Done)
		assert.Empty(t, w.Deprovisioned())
	})
}

// An order to fence on which nothing was done is not carried out hours later. // I4
func TestOldOrderIsNotCarriedOut(t *testing.T) {
	for _, after := range []time.Duration{20 * time.Second, 11 * time.Minute} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady("True")
			e, _, stop := start(t, w, store, nil)
			time.Sleep(10 * time.Second)
			asked := w.Looks()
			w.OnLook(func(n int) {
				if n > asked+1 { // the run's own
					time.Sleep(time.Second)
				}
			})
			accepted(t)(e.Fence(t.Context(), byHand))
			stop() // while it looks for the first time
			w.OnLook(nil)
			require.Zero(t, w.Count(bmc.CommandOff))
			time.Sleep(after)
			e = running(t, w, store, func(o *engine.Options) { // its deadlines begin anew
				o.Clusters[0].Watch = &oldWatch{Watch: o.Clusters[0].Watch, noClock: true}
			})
			time.Sleep(10 * time.Minute)
			assert.False(t, only(t, e).Open())
			assert.Equal(t, after < time.Minute, w.Count(bmc.CommandOff) > 0)
		})
	}
}
