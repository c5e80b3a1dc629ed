package engine_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// on has the instances run on hosts of the cluster.
func on(hostOf map[string]string) func(string, *engine.Options) {
	return func(name string, o *engine.Options) {
		if host := hostOf[name]; host != "" {
			o.Own = hosts.Own{MachineID: "machine-" + host}
		}
	}
}

// asides are the events of an instance about its own host.
func (p *pair) asides(t *testing.T, name string) (messages []string) {
	t.Helper()
	for _, ev := range eventsOf(t, p.events[name], func(ev event.Event) bool { return ev.Type == event.OwnerChanged && ev.Reason == reason.OwnHost }) {
		messages = append(messages, ev.Message)
	}
	return messages
}

// An owner whose own host is to be fenced hands the cluster over by itself, and the other
// instance fences the host. It may own the cluster again when the host has been healthy for
// five minutes. // I13
func TestOwnerOfASickHostHandsTheClusterOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, on(map[string]string{"a": "n-1"}))
		p.give("a")
		time.Sleep(55 * time.Second)
		assert.Empty(t, p.engine["a"].Status()[0].Aside, "the check waits for a minute")
		time.Sleep(20 * time.Second)
		s := p.engine["a"].Status()[0]
		assert.False(t, s.Owner)
		assert.Contains(t, s.Aside, "the Node's machineID is this host's /etc/machine-id; instance b owns the cluster")
		require.Len(t, p.asides(t, "a"), 1)
		assert.Contains(t, p.asides(t, "a")[0], "instance b stands by and takes the cluster over")
		time.Sleep(4 * time.Minute)
		r := only(t, p.engine["b"])
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		assert.NotEmpty(t, p.engine["a"].Status()[0].Aside)
		time.Sleep(4 * time.Minute)
		assert.Empty(t, p.engine["a"].Status()[0].Aside)
		require.Len(t, p.asides(t, "a"), 2)
		assert.Contains(t, p.asides(t, "a")[1], "may own the cluster again")
		assert.Empty(t, p.asides(t, "b"))
		assert.EqualValues(t, 2, p.latest())
	})
}

// Without another instance the owner keeps the cluster, and says that nobody stands by.
// With a store of its own there can be none.
func TestOwnerOfASickHostWithoutAStandby(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		d := newDeed()
		own := func(o *engine.Options) { o.Own = hosts.Own{MachineID: "machine-n-1"} }
		e := running(t, w, store, func(o *engine.Options) { own(o); o.Instance, o.Owners = "a", d.heir("a", store) })
		d.give("a")
		time.Sleep(10 * time.Minute)
		assert.True(t, e.Status()[0].Owner)
		assert.Contains(t, e.Status()[0].Aside, "no other instance stands by")
		assert.Empty(t, w.Commands())
	})
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Own = hosts.Own{MachineID: "machine-n-1"} })
		time.Sleep(10 * time.Minute)
		assert.True(t, e.Status()[0].Owner)
		assert.Empty(t, e.Status()[0].Aside)
		assert.Equal(t, 1, len(refusals(t, events)))
		assert.Zero(t, heard(t, events, "leaves the cluster"))
	})
}

// Two instances whose hosts are both sick do not pass the cluster to and fro: the owner keeps it,
// and fences the host of the other one.
func TestSickHostsOfAllInstances(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Cluster.Handle("other-0").Hang()
		p := newPair(t, w, store, on(map[string]string{"a": "other-0", "b": "n-1"}))
		p.give("a")
		time.Sleep(62 * time.Second)
		for range 30 * 60 {
			time.Sleep(time.Second)
			require.LessOrEqual(t, p.latest(), uint64(2))
		}
		done := map[string]remediate.Step{}
		for _, r := range p.engine["a"].Runs("c") {
			done[r.Target.Node] = r.Step
		}
		assert.Equal(t, remediate.Done, done["n-1"])
	})
}

// A standby whose host is to be fenced does not take the cluster over, also while another
// instance has a run open on that host that is Held.
func TestStandbyOfASickHostStaysAside(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		p := newPair(t, w, store, on(map[string]string{"a": "n-1"}))
		p.give("b")
		time.Sleep(30 * time.Minute)
		require.Equal(t, remediate.Held, only(t, p.engine["b"]).Step)
		assert.True(t, p.isAside("a"))
		p.stop["a"]()
		p.setAside("a", false)
		e, events, stop := start(t, w, p.store["a"], func(o *engine.Options) { // it has forgotten everything
			o.Owners, o.Instance, o.StoreID = p.heirs["a"], "a", "shared"
			on(map[string]string{"a": "n-1"})("a", o)
		})
		time.Sleep(time.Minute)
		assert.True(t, p.isAside("a"))
		assert.True(t, strings.HasPrefix(e.Status()[0].Aside, "run "), e.Status()[0].Aside)
		assert.Equal(t, 1, heard(t, events, "leaves the cluster to the others"))
		stop()
		p.stop["b"]()
	})
}

// A host that is refused for other reasons, too, is no reason to hand the cluster over.
func TestOwnerKeepsTheClusterWhileNobodyCouldFence(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, w *world, p *pair){
		"paused check": func(_ *testing.T, w *world, _ *pair) { w.pauseCheck() },
		"held": func(t *testing.T, _ *world, p *pair) {
			accepted(t)(p.engine["a"].Hold(t.Context(), byHand))
		},
		"healthy": func(_ *testing.T, w *world, _ *pair) { w.Recover() },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			p := newPair(t, w, store, on(map[string]string{"a": "n-1"}))
			p.give("a")
			time.Sleep(5 * time.Second)
			change(t, w, p)
			time.Sleep(20 * time.Minute)
			assert.True(t, p.engine["a"].Status()[0].Owner)
			assert.Empty(t, p.asides(t, "a"))
		})
	}
}

// A run that switches its host off is not interrupted by the hand-over, and the next owner
// continues it.
func TestHandOverWaitsForTheLastMomentOfARun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.Late)
		w.Do(func(s *fake.State) { s.Host("n-1").LateBy = func() time.Duration { return 8 * time.Second } })
		p := newPair(t, w, store, on(map[string]string{"a": "other-0"}))
		p.give("a")
		time.Sleep(untilOff)
		synctest.Wait() // the Off is sent: the last moment of the run has begun
		w.Cluster.Handle("other-0").SetReadySince("Unknown", time.Now().Add(-time.Hour))
		w.Do(func(s *fake.State) { s.Host("other-0").Kernel = fake.Dead })
		waited := 0
		for ; ; waited++ {
			owner := p.engine["a"].Status()[0].Owner // read first: the hand-over follows the isolation in the same moment
			if w.Isolations() > 0 {
				break
			}
			require.True(t, owner)
			time.Sleep(time.Second)
		}
		require.Greater(t, waited, 8)
		offs := w.Count(bmc.CommandOff)
		time.Sleep(10 * time.Second)
		require.True(t, p.engine["b"].Status()[0].Owner)
		time.Sleep(10 * time.Minute)
		for _, r := range p.engine["b"].Runs("c") {
			assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		}
		assert.Equal(t, offs, w.Count(bmc.CommandOff), "nothing was begun again")
	})
}

var errForbidden = errors.New("update Lease kube-system/fenced: forbidden")

// contests counts the events that say that nothing is done because of others.
func contests(t *testing.T, s *event.Stream) int {
	t.Helper()
	return len(eventsOf(t, s, func(ev event.Event) bool {
		return ev.Type == event.Refused && ev.Node == "" && ev.Reason == reason.NotOwner
	}))
}

// Of two installations with separate stores, the one that starts second only observes, and
// reports it.
func TestSecondInstallationOnlyObserves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const foreigner = "fenced instance x holds the Lease"
		w.setForeignHolder(foreigner)
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Instance, o.StoreID = "a", "id" })
		time.Sleep(10 * time.Minute)
		assert.Empty(t, w.Commands())
		assert.Equal(t, foreigner, gate(t, e, reason.NotOwner).Value)
		assert.Equal(t, "Lease fenced", gate(t, e, reason.NotOwner).Source)
		assert.Equal(t, foreigner, e.Status()[0].Idle)
		assert.Equal(t, 1, contests(t, events), "told once")
		refused(t, reason.NotOwner)(e.Fence(t.Context(), byHand))
		_, told := w.Announcements()
		assert.Equal(t, lead.Announcement{Instance: "a", StoreID: "id", Epoch: 1}, told)
		w.setForeignHolder("")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Empty(t, e.Status()[0].Idle)
	})
}

// slowProof makes a run take its time between Off and the isolation.
func slowProof(o *engine.Options) {
	o.Power.OffReadSpacing = 20 * time.Second
	o.Run.OffDeadline = 5 * time.Minute
}

// When another installation starts to act, an open run is rolled back.
func TestForeignInstallationRollsBackAnOpenRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, slowProof)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.setForeignHolder("fenced instance x holds the Lease")
		time.Sleep(5 * time.Minute)
		r := e.Runs("c")[0]
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Equal(t, "Contested", string(r.Reason))
		assert.Contains(t, r.Note, "instance x")
		assert.True(t, w.On())
		assert.Zero(t, w.Isolations())
		assert.Len(t, e.Runs("c"), 1, "and no other run is begun")
	})
}

// If the API server forbids the Lease, fenced cannot know whether another installation
// acts, and starts no run.
func TestForbiddenLeaseForbidsEveryRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.failAnnouncements(errForbidden)
		e, events, _ := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, w.Commands())
		assert.Contains(t, gate(t, e, reason.NotOwner).Value, "forbidden")
		assert.Equal(t, 1, contests(t, events))
		w.failAnnouncements(nil)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// 15 s after the last renewal of the Lease nothing destructive is done, and the host is
// powered on again.
func TestLeaseThatIsNotRenewedForbidsTheIsolation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, slowProof)
		time.Sleep(untilOff) // announced at 60 s, proven off at 80 s
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.failAnnouncements(errForbidden)
		time.Sleep(10 * time.Minute)
		assert.Zero(t, w.Isolations())
		assert.True(t, w.On())
		assert.NotEqual(t, remediate.Done, only(t, e).Step)
	})
}

// If the Lease expires between the look and the command, the command is not sent.
func TestExpiredLeaseForbidsTheNextCommand(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		running(t, w, store, func(o *engine.Options) {
			o.Record = func(ev event.Event) error {
				if ev.Action == remediate.SendOff {
					w.failAnnouncements(errForbidden)
					time.Sleep(16 * time.Second) // a slow disk
				}
				return nil
			}
		})
		time.Sleep(3 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
	})
}

// An instance that only observes does not take the Lease. It takes it when it is armed.
func TestObserverTakesNoLease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		time.Sleep(10 * time.Minute)
		n, _ := w.Announcements()
		assert.Zero(t, n)
		assert.Empty(t, e.Status()[0].Idle)
		must.Do(e.Arming.Arm(t.Context(), byHand))(t)
		time.Sleep(4 * time.Second)
		require.Len(t, e.Runs("c"), 1)
		must.Do(e.Arming.Disarm(t.Context(), byHand))(t)
		before, _ := w.Announcements()
		time.Sleep(20 * time.Second)
		n, _ = w.Announcements()
		assert.Greater(t, n, before, "as long as a run is open")
		time.Sleep(10 * time.Minute)
		before, _ = w.Announcements()
		time.Sleep(time.Minute)
		n, _ = w.Announcements()
		assert.Equal(t, before, n)
	})
}

// hangingWatch is the watch of a cluster whose deciding loop hangs from a moment on.
type hangingWatch struct {
	admit.Watch
	from <-chan struct{}
	till <-chan struct{}
}

func (w hangingWatch) Changes() []policy.Change {
	select {
	case <-w.from:
		<-w.till
	default:
	}
	return w.Watch.Changes()
}

// The watchdog is fed while the deciding loops of all clusters make progress: one that hangs is noticed,
// though all other goroutines live, the deciding loop of another cluster among them.
func TestOneHungLoopFeedsNoWatchdog(t *testing.T) {
	for _, hung := range []string{"one", "other"} {
		scene(t, hung, func(t *testing.T, _ *world, store *failingStore) {
			p, from, till := &pulse{}, make(chan struct{}), make(chan struct{})
			all := fleets{newFleet("one", 3, "z"), newFleet("other", 3, "z")}
			e, _, _ := all.guardBeating(t, store, func(o *engine.Options) {
				for i := range o.Clusters {
					if c := &o.Clusters[i]; c.Name == hung {
						c.Watch = hangingWatch{c.Watch, from, till}
					}
				}
			}, p.beat)
			time.Sleep(10 * time.Minute)
			p.requireAlive(t)

			close(from)
			time.Sleep(10 * time.Minute)
			require.Greater(t, p.silence(), watchdogTime, "the longest time without a beat")
			for _, c := range e.Status() {
				assert.Less(t, c.View.Age, time.Minute, "what watches %s lives", c.Name)
			}
			close(till)
		})
	}
}

// What an order would be refused for is known before it is given: the dry run, the plan, the explanation and the order to
// arm say that another installation holds the Lease, and so does the status. An installation that only observes reads the
// Lease, and writes nothing. // I22
func TestWhoHoldsTheLeaseIsKnownBeforeAnOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const foreigner = "fenced instance x holds the Lease"
		w.setForeignHolder(foreigner)
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		time.Sleep(10 * time.Minute)
		asAdmin := byHand
		asAdmin.Role = wire.Admin
		refused(t, reason.NotOwner)(e.Fence(t.Context(), dryRun(asAdmin)))
		refused(t, reason.NotOwner)(e.Arming.Arm(t.Context(), dryRun(byHand)))
		refused(t, reason.NotOwner)(e.Arming.Arm(t.Context(), byHand))
		assert.Equal(t, foreigner, gate(t, e, reason.NotOwner).Value)
		armed := must.Do(e.Arming.Plan(t.Context(), "c"))(t)
		assert.Equal(t, reason.NotOwner, armed.Items[0].Gate.Reason)
		assert.Equal(t, []string{foreigner, foreigner}, []string{e.Status()[0].Idle, e.Status()[0].HeldBy})
		assert.Equal(t, 1, contests(t, events), "told once")
		n, _ := w.Announcements()
		assert.Zero(t, n, "the Lease is only read")

		w.setForeignHolder("")
		time.Sleep(10 * time.Second)
		assert.Empty(t, e.Status()[0].Idle+e.Status()[0].HeldBy)
		must.Do(e.Arming.Arm(t.Context(), byHand))(t)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}
