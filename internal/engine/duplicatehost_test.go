package engine_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// meanwhile is a cluster in which something happens during the first look of a run.
type meanwhile struct {
	metal
	happens func()
	looks   atomic.Int32
	held    atomic.Int32
}

func (m *meanwhile) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	if r.ID != "" && m.looks.Add(1) == 1 {
		m.happens()
		time.Sleep(3 * time.Second) // until the watch has told of it
	}
	return m.metal.Look(ctx, r, backups)
}

func (m *meanwhile) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	if a == remediate.SetPowerLock {
		m.held.Add(1)
		return nil
	}
	return m.metal.Act(ctx, r, a, backups, b)
}

// Whoever carries out the power lock uses the current address of the BareMetalHost. So no
// lock is set if the address has changed since the run started. // I9, I10
func TestPowerLockIsNotSetIfTheAddressChanged(t *testing.T) {
	to := func(m metal, name, address string) {
		m.set(name, func(h *policy.Host) { h.Address = address })
	}
	for name, happens := range map[string]func(metal){
		"nothing":                     func(metal) {},
		"it leads to nobody's BMC":    func(m metal) { to(m, "h-1", "ipmi://192.0.2.66") },
		"another host leads to its":   func(m metal) { to(m, "h-2", "ipmi://192.0.2.10") },
		"another Node tells its UUID": func(m metal) { m.duplicateUUID() },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			m := &meanwhile{metal: newMetal(w)}
			m.happens = func() { happens(m.metal) }
			e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = m })
			time.Sleep(90 * time.Second)
			require.Len(t, e.Runs("c"), 1)
			assert.Equal(t, name == "nothing", m.held.Load() > 0, "held %d times", m.held.Load())
			assert.Zero(t, w.Count(bmc.CommandOff))
		})
	}
}

// A power lock that was recorded and not set waits, after a restart, until the BMC has
// shown its identity: the lock is a power command, too. // I8
func TestPowerLockWaitsForTheIdentityAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := &meanwhile{metal: newMetal(w), happens: func() {}}
		options := func(o *engine.Options) { o.Clusters[0].Kube = m }
		_, _, stop := start(t, w, store, options)
		await(t, func() bool { return m.held.Load() > 0 })
		stop()
		m.set("h-1", func(h *policy.Host) { h.Address = "ipmi://192.0.2.66" })
		before := m.held.Load()
		running(t, w, store, options)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, before, m.held.Load(), "the hold would switch off whatever is at the new address")
	})
}

// A host that has become a duplicate gets no Off, whether its run has recorded one or
// not. // I9
func TestDuplicateHostGetsNoOff(t *testing.T) {
	for name, saved := range map[string]string{
		"the run has just begun": `"step":"PowerOff"`, "the first Off was recorded, and not taken": `"intent":{"action":"SendOff"`,
	} {
		scene(t, name, func(t *testing.T, w *world, inner *failingStore) {
			var away atomic.Bool
			var once sync.Once
			begun, store := make(chan struct{}), &stubborn{Store: inner}
			store.watch(func(run []byte) {
				if bytes.Contains(run, []byte(saved)) {
					once.Do(func() { away.Store(true); close(begun) })
				}
			})
			e := running(t, w, store, func(o *engine.Options) {
				o.Open = func(bmc.Device) (bmc.Power, error) { return reboots{w.bmc(), &away}, nil }
			})
			<-begun
			w.duplicateUUID()
			time.Sleep(10 * time.Second)
			away.Store(false)
			time.Sleep(10 * time.Minute)
			assert.Zero(t, w.Count(bmc.CommandOff))
			assert.Zero(t, w.Isolations())
			r := stands(t, e, remediate.Aborted, "PowerForbidden")
			assert.Contains(t, r.Note, "the same system UUID")
		})
	}
}

// cutLook is a cluster that does not answer the next look before it is given up.
type cutLook struct {
	engine.Kube
	cut *atomic.Bool
}

func (c cutLook) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	if c.cut.CompareAndSwap(true, false) {
		<-ctx.Done()
		return run.Fresh{Err: ctx.Err()}
	}
	return c.Kube.Look(ctx, r, backups)
}

// A probe that ends with the leadership does not prevent the next one. // L4
func TestCancelledProbeIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var cut atomic.Bool
		cut.Store(true)
		p := newPair(t, w, store, func(_ string, o *engine.Options) { o.Clusters[0].Kube = cutLook{o.Clusters[0].Kube, &cut} })
		p.give("a")
		for cut.Load() {
			time.Sleep(100 * time.Millisecond)
		}
		require.Empty(t, p.engine["a"].Runs("c"))
		p.take("a")
		p.give("a")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
	})
}

// show shows a Node of another name with the UUID of n-1's host.
func (w *world) show(name, boot, ready string, since time.Time) {
	w.Do(func(s *fake.State) {
		s.PutNode(fake.Node{Name: name, UID: "uid-" + name, BootID: boot, SystemUUID: hostUUID, Ready: ready, Since: since})
	})
}

// isolated starts an engine and waits until n-1 was isolated, which never registers again.
func isolated(t *testing.T, w *world, store *failingStore) (*engine.Engine, func()) {
	t.Helper()
	w.SetBootTime(never)
	e, _, stop := start(t, w, store, nil)
	time.Sleep(2 * time.Minute)
	require.Equal(t, remediate.AwaitNode, only(t, e).Step)
	require.Equal(t, 1, w.Isolations())
	return e, stop
}

// A host that has registered under another name is not power-cycled again, even if the
// daemon restarts meanwhile.
func TestHostThatRegistersUnderAnotherName(t *testing.T) { // I6
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, stop := isolated(t, w, store)
		w.show("n-new", "boot-2", "True", time.Now())
		stop()
		w.setUnsynced(true) // the next daemon has not seen the cluster yet
		e := running(t, w, store, nil)
		time.Sleep(30 * time.Minute)
		require.Equal(t, remediate.AwaitNode, only(t, e).Step, "nobody can say whether the host works elsewhere")
		w.setUnsynced(false)
		time.Sleep(30 * time.Minute)
		run := stands(t, e, remediate.Held, "NodeRenamed")
		assert.Contains(t, run.Note, "n-new")
		assert.Equal(t, 1, w.Count(bmc.CommandOff), "it works: it is not switched off again")
	})
}

// A Node left over from an earlier renaming does not show where the host is now: the host
// is power-cycled.
func TestOldNodeOfARenamedHostIsNoReturn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _ := isolated(t, w, store)
		w.show("n-old", "boot-0", "Unknown", time.Now().Add(-time.Hour))
		time.Sleep(15 * time.Minute)
		assert.Equal(t, 2, w.Count(bmc.CommandOff))
		assert.Equal(t, 2, only(t, e).Attempt)
		w.show("n-old", "boot-3", "Unknown", time.Now()) // it has been heard of, and is silent again
		time.Sleep(15 * time.Minute)
		assert.Equal(t, "NodeRenamed", string(only(t, e).Reason))
		assert.Equal(t, 2, w.Count(bmc.CommandOff))
	})
}

// A boot from before the run is no return, even if the control plane set the Node to
// Unknown only during the run.
func TestBootFromBeforeTheRunIsNoReturn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _ := isolated(t, w, store)
		w.show("n-old", only(t, e).Target.BootID, "Unknown", time.Now())
		time.Sleep(15 * time.Minute)
		assert.Equal(t, 2, w.Count(bmc.CommandOff))
	})
}

// If a Machine names a BareMetalHost that is not found, its run is refused, even if
// hosts.d names the host: fenced can neither ask the owner of the BareMetalHost nor set
// the power lock. // I22
func TestMissingBareMetalHostIsRefused(t *testing.T) {
	named := map[string]func(*policy.Machine){
		"gone":       func(m *policy.Machine) { m.ProviderID = "baremetalhost:///ns/h-1/u-1" },
		"unreadable": func(m *policy.Machine) { m.ProviderID = "metal3://ns/h-1" },
		"annotated":  func(m *policy.Machine) { m.Annotations = map[string]string{"metal3.io/BareMetalHost": "ns/h-1"} },
	}
	for name, change := range named {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			e := running(t, w, store, eachMachine(func(_ *policy.Change, m *policy.Machine) { change(m) }))
			time.Sleep(5 * time.Minute)
			assert.Empty(t, e.Runs("c"))
			assert.False(t, gate(t, e, reason.InvalidHost).Pass)
			refused(t, reason.InvalidHost)(e.Fence(t.Context(), byHand)) // people are bound, too
			assert.Zero(t, w.Reads(), "its BMC is not even asked")
		})
	}
}

// The providerID of another infrastructure names no BareMetalHost.
func TestOtherProviderIDIsFencedByHostsD(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, eachMachine(func(_ *policy.Change, m *policy.Machine) { m.ProviderID = "k3s://n-1" }))
		time.Sleep(65 * time.Second)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// A tenant's Machine that names the Node of another one, NotReady for a while, beside a request or a check of the
// tenant: nobody's host is switched off, and whoever asks is told why. A person is bound, too. // I4, I8
func TestForgedMachineFencesNobody(t *testing.T) {
	forged := policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "tenant", Name: "x", UID: "xu", NodeName: "n-1", Phase: "Running"}
	for name, asks := range map[string]func(w *world, s *fake.State){
		"a request": func(_ *world, s *fake.State) {
			s.Ask("x", func(q *policy.Request) { q.Namespace = "tenant" })
		},
		"a check": func(_ *world, s *fake.State) {
			c := *s.Check
			c.Namespace, c.Name = "tenant", "all"
			s.ShowCheck(&c)
		},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.Do(func(s *fake.State) {
				s.ChangeCheck(func(c *policy.Check) { c.Paused = true }) // the Node's own
				s.PutStranger(forged)
			})
			e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Requests = w.Requests() })
			w.Do(func(s *fake.State) { asks(w, s) })
			time.Sleep(10 * time.Minute)
			untouched(t, w, e)
			why := refused(t, reason.NodeNotOwned)(e.Fence(t.Context(), wire.Order{Cluster: "c", Machine: "tenant/x", Actor: byHand.Actor, Reason: byHand.Reason}))
			assert.Contains(t, why, "it lacks the annotation machine.openshift.io/machine: tenant/x (it names ns/m-1)")
			w.Do(func(s *fake.State) {
				if q := s.Asked["x"]; q != nil {
					told := s.Told[q.UID]
					require.NotEmpty(t, told.Conditions)
					assert.Contains(t, told.Conditions[0].Message, "Machine tenant/x names Node n-1, and the Node does not name it")
				}
			})
			_, err := e.Fence(t.Context(), byHand)
			assert.NoError(t, err, "the Node's own Machine is in no doubt")
		})
	}
}

// While that Node does not exist, it cannot show whose it is, and hosts.d names the host by the Node's name: a person who names the
// forged Machine means another host. // I8
func TestForgedMachineOfANodeThatIsGoneFencesNobody(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ChangeEntry(func(h *bmc.Host) { h.PinnedUUID = hostUUID })
		w.pauseCheck()
		e := running(t, w, store, nil)
		w.Do(func(s *fake.State) {
			s.RemoveNode("n-1")
			s.PutStranger(policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "tenant", Name: "x", UID: "xu", NodeName: "n-1", Phase: "Running"})
		})
		time.Sleep(10 * time.Second)
		why := refused(t, reason.NodeNotOwned)(e.Fence(t.Context(), wire.Order{Cluster: "c", Machine: "tenant/x", Actor: byHand.Actor, Reason: byHand.Reason}))
		assert.Contains(t, why, "Machine tenant/x names Node n-1, which does not exist")
		untouched(t, w, e)
		must.Do(e.Fence(t.Context(), wire.Order{Cluster: "c", Machine: "ns/m-1", Actor: byHand.Actor, Reason: byHand.Reason}))(t)
	})
}

// losesOns is an outlet whose PDU loses every On for twelve minutes.
type losesOns struct {
	bmc.Power
	ons *atomic.Int32
}

func (l losesOns) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if c == bmc.CommandOn && l.ons.Add(1) <= 12 {
		return bmc.Receipt{}, nil
	}
	return l.Power.Send(ctx, c)
}

// A BMC that reads On is a witness against the Off of an outlet, not a proof that the
// outlet is on again: a run that sent the outlet an Off stays Held until it has read it
// On. // I20
func TestOutletIsNotLeftOffBecauseTheBMCReadsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, _ := withOutlet(w)
		p.Change(func(o *fake.Outlet) { o.FeedsAnother = true })
		w.SetFault(fake.IgnoresOff) // the host stays On, and its BMC says so
		e, stop := enrolled(t, w, store, opening(w.bmc(), losesOns{p, new(atomic.Int32)}))
		time.Sleep(4 * time.Minute)
		r := only(t, e)
		assert.Equal(t, "OutletContradicted", string(r.Reason))
		assert.Equal(t, "power level 2 (fence_apc_snmp://192.0.2.200#7) reads Off while ipmi://192.0.2.1:623 reads On: it may feed another machine", r.Note)
		w.SetReady("True") // the host was well after all
		time.Sleep(7 * time.Minute)
		assert.Equal(t, remediate.Held, only(t, e).Step, "the outlet is off")
		time.Sleep(13 * time.Minute)
		r = only(t, e)
		subject := subject(t, e)
		refusals := e.Forbidden(t.Context(), subject)
		stop()
		require.Len(t, refusals, 1, "the next run must not cut it again")
		assert.Equal(t, reason.NotEnrolled, refusals[0].Reason)
		assert.Contains(t, refusals[0].Message, "power level 2 read Off while a lower one read On")
		assert.Equal(t, remediate.Aborted, r.Step, "%s: %s", r.Reason, r.Note)
		assert.True(t, p.On())
		offs := 0
		for _, c := range p.Commands() {
			if c == bmc.CommandOff {
				offs++
			}
		}
		assert.Equal(t, 1, offs, "nothing was to be won by another")
		assert.Zero(t, w.Isolations())
	})
}

// losesAPin is a store that refuses the pin that comes next.
type losesAPin struct {
	state.Store
	next *atomic.Bool
}

func (l losesAPin) Put(ctx context.Context, r state.Record) (uint64, error) {
	if r.Kind == state.KindPin && l.next.CompareAndSwap(true, false) {
		return 0, errors.New("disk full")
	}
	return l.Store.Put(ctx, r)
}

// A run does not end before it is stored that its outlet counts as enrolled no more: nobody would look at the contradiction again, and the next
// run would cut the power of the same other machine. // I8
func TestRunEndsOnceItsContradictedEnrolmentHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		p.Change(func(o *fake.Outlet) { o.FeedsAnother = true })
		w.SetFault(fake.IgnoresOff)
		var refuse atomic.Bool
		e, _, stop := start(t, w, losesAPin{store, &refuse}, levels)
		time.Sleep(time.Second)
		enroll(t, e)
		time.Sleep(4 * time.Minute)
		require.Equal(t, reason.OutletContradicted, only(t, e).Reason)
		refuse.Store(true)
		w.SetReady("True")
		time.Sleep(20 * time.Minute)
		require.Equal(t, remediate.Aborted, only(t, e).Step)
		require.False(t, refuse.Load(), "no pin was saved")
		stop()
		assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)
	})
}

// patient is a policy that waits an hour, unless the BMC reads Off.
func patient() policy.Check {
	p := nodePolicy()
	p.Conditions[0].Timeout, p.ShortenOnEvidence = time.Hour, true
	return p
}

func TestHostThatReadsOffIsNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetPower(false)
		e := running(t, w, store, withPolicy(w, patient()))
		time.Sleep(6 * time.Minute)
		r := stands(t, e, remediate.Done)
		assert.True(t, r.FoundOff)
	})
}

// An outlet that reads Off shortens no wait, even if it is enrolled.
func TestOutletThatReadsOffIsNoEvidence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.ChangeEntry(func(h *bmc.Host) { h.Levels = h.Levels[1:] })
		file := withPolicy(w, patient())
		e, _ := enrolled(t, w, store, func(o *engine.Options) { levels(o); file(o) })
		must.Do(p.Send(t.Context(), bmc.CommandOff))(t) // by another hand
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
	})
}

// The BMC is read at a limited rate, and On shortens no wait.
func TestHostThatReadsOnIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, withPolicy(w, patient()))
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		reads := w.Reads()
		assert.InDelta(t, 41, reads, 2, "one look each 15 s")
	})
}

// A reading gets too old: a BMC that stops answering proves nothing any longer.
func TestOldReadingNoLongerCounts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetPower(false)
		w.setContested(remediate.Yes) // keeps the run from being begun
		e := running(t, w, store, withPolicy(w, patient()))
		verdict := func() policy.Verdict {
			x := explained(t, e)
			return x.Verdict
		}
		time.Sleep(10 * time.Minute)
		require.Equal(t, policy.Unhealthy, verdict(), "read again and again")
		w.FailReads(noAnswer())
		time.Sleep(20 * time.Second)
		assert.Equal(t, policy.Pending, verdict())
		assert.Empty(t, e.Runs("c"))
	})
}

// The BMC of another machine shortens no wait, and an instance that only observes reads no
// BMC. // I8
func TestWaitIsShortenedOnlyWithIdentityAndWhenArmed(t *testing.T) {
	cases := map[string]func(*world, *engine.Options){
		"identity":  func(w *world, _ *engine.Options) { w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999") },
		"observing": func(_ *world, o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve },
	}
	for name, change := range cases {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.SetPower(false)
			e := running(t, w, store, func(o *engine.Options) {
				withPolicy(w, patient())(o)
				change(w, o)
			})
			time.Sleep(10 * time.Minute)
			assert.Empty(t, e.Runs("c"))
			assert.Equal(t, name == "observing", w.Reads() == 0)
		})
	}
}

// However many hosts a check waits for, each BMC is read in its turn.
func TestBMCsOfWaitingHostsAreReadInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		crowd := inCrowd(w, 200)
		running(t, w, store, func(o *engine.Options) {
			withPolicy(w, patient())(o)
			crowd.options(o)
		})
		time.Sleep(time.Minute)
		nodes, _ := crowd.counted()
		assert.Equal(t, 201, nodes)
	})
}
