package engine_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
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
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

// bubble runs a test in virtual time over a store in a real directory.
func bubble(t *testing.T, f func(t *testing.T, w *world, store *failingStore)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := &failingStore{Store: openStore(t, dir), changed: make(chan struct{}, 1)}
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		f(t, newWorld(), store)
	})
}

// scene is a bubble in a table of them.
func scene(t *testing.T, name string, f func(t *testing.T, w *world, store *failingStore)) {
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

func only(t *testing.T, e *engine.Engine) remediate.Run {
	t.Helper()
	runs := e.Runs("c")
	if len(runs) != 1 {
		require.Len(t, runs, 1, "gates: %+v", explained(t, e).Gates)
	}
	return runs[0]
}

// stands requires that the only run is at a step, for a reason if one is given.
func stands(t *testing.T, e *engine.Engine, at remediate.Step, why ...reason.Code) remediate.Run {
	t.Helper()
	r := only(t, e)
	require.Equal(t, at, r.Step, "%s: %s", r.Reason, r.Note)
	for _, code := range why {
		require.Equal(t, code, r.Reason, r.Note)
	}
	return r
}

// untouched requires that there is no run, and that no command was sent.
func untouched(t *testing.T, w *world, e *engine.Engine) {
	t.Helper()
	assert.Empty(t, e.Runs("c"))
	assert.Empty(t, w.Commands())
}

// await lets time pass until ok.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	for range 36000 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Fail(t, "it does not happen within an hour")
}

// gateIn is the first gate of an explanation that is so.
func gateIn(t *testing.T, x admit.Explanation, is func(reason.Gate) bool) reason.Gate {
	t.Helper()
	i := slices.IndexFunc(x.Gates, is)
	require.NotEqual(t, -1, i, "no such gate among %+v", x.Gates)
	return x.Gates[i]
}

// firstRefusal is the first gate of an explanation that forbids to fence; empty if none does.
func firstRefusal(x admit.Explanation) reason.Gate {
	for _, g := range x.Gates {
		if !g.Pass {
			return g
		}
	}
	return reason.Gate{}
}

func gate(t *testing.T, e *engine.Engine, code reason.Code) reason.Gate {
	t.Helper()
	return gateIn(t, explained(t, e), func(g reason.Gate) bool { return g.Reason == code })
}

// A run uses one session with its BMC, from the probe that admits it to its end: a BMC has few, and each costs a login. Where
// medik8s is not installed, nobody asks for its Lease: what a look has found is not asked again.
func TestUnknownNodeIsFencedAndComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var opened, locks atomic.Int64
		counted := withLock(func(context.Context, remediate.Run) error { locks.Add(1); return nil })
		e := running(t, w, store, func(o *engine.Options) {
			counted(o)
			open := o.Open
			o.Open = func(d bmc.Device) (bmc.Power, error) {
				opened.Add(1)
				return open(d)
			}
		})
		time.Sleep(59 * time.Second)
		require.Zero(t, w.Count(bmc.CommandOff), "inside the timeout nothing is sent")
		time.Sleep(5 * time.Minute)
		stands(t, e, remediate.Done)
		assert.Equal(t, 1, w.Isolations())
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		assert.True(t, w.Restored())
		assert.EqualValues(t, 1, opened.Load())
		assert.Zero(t, locks.Load())
	})
}

// A record that is not durable authorises no action. // I19
func TestNothingIsDoneWhileTheStoreRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, _ := start(t, w, store, nil)
		time.Sleep(30 * time.Second)
		store.set(true)
		time.Sleep(10 * time.Minute)
		require.Empty(t, w.Commands())
		require.Zero(t, w.Isolations())
		failed := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Failed })
		require.NotEmpty(t, failed, "the refusal of the store was not told")
		require.Empty(t, slotsOf(t, store))
		store.set(false)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step, "the run starts once the store works")
	})
}

// A stop at any moment, and a start with the same store, lead to the same end as an
// undisturbed run. // I20
func TestRestartAtAnyMomentReachesTheSameEnd(t *testing.T) {
	for _, at := range []time.Duration{61, 63, 66, 70, 76, 82, 88, 95, 105} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			_, _, stop := start(t, w, store, nil)
			time.Sleep(at * time.Second)
			stop()
			e := running(t, w, store, nil)
			time.Sleep(10 * time.Minute)
			stands(t, e, remediate.Done)
			assert.Equal(t, 1, w.Isolations(), "stopped after %ds", at)
		})
	}
}

func TestRefusalsHaveReasonsAndTouchNothing(t *testing.T) {
	cases := map[reason.Code]func(*world, *engine.Options){
		reason.IdentityMismatch: func(w *world, _ *engine.Options) { w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999") },
		reason.IdentityUnknown:  func(w *world, _ *engine.Options) { w.SetBMCUUID("") },
		"BMCAuth": func(w *world, _ *engine.Options) {
			w.FailReads(refusedAccount())
		},
		reason.Contested:   func(w *world, _ *engine.Options) { w.setContested(remediate.Yes) },
		reason.PowerOwner:  func(w *world, _ *engine.Options) { w.Do(func(s *fake.State) { s.PowerForbidden = "disablePowerOff" }) },
		reason.Observing:   func(_ *world, o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve },
		reason.QuietPeriod: func(_ *world, o *engine.Options) { o.Guards.QuietPeriod = time.Hour },
	}
	for code, change := range cases {
		scene(t, string(code), func(t *testing.T, w *world, store *failingStore) {
			e := running(t, w, store, func(o *engine.Options) { change(w, o) })
			time.Sleep(10 * time.Minute)
			assert.False(t, gate(t, e, code).Pass)
			untouched(t, w, e)
		})
	}
}

// Only as many runs start as the limit allows. The place is free again at
// registration. // I11
func TestInFlightLimitDelaysTheSecondNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) { o.Guards.MaxInFlight = 0 })
		time.Sleep(untilOff + time.Second)
		require.Len(t, e.Runs("c"), 1, "at least one is always allowed")
		w.setOthersDown(true)
		time.Sleep(2 * time.Second)
		require.Len(t, e.Runs("c"), 1)
		x := must.Do(e.Explain(t.Context(), "c", "other-0"))(t)
		reasons := map[reason.Code]bool{}
		for _, g := range x.Gates {
			reasons[g.Reason] = true
		}
		assert.True(t, reasons[reason.InFlightLimit], "%+v", x.Gates)
	})
}

// If the BMC address of a host changes while its run is open, the run does not follow
// it. // I10
func TestRunDoesNotFollowAChangedAddress(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, store, nil)
		time.Sleep(untilOff)
		stop()
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].Endpoint.Host = "192.0.2.66" })
		e := running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Held, reason.AddressChanged)
		assert.Zero(t, w.Isolations())
		assert.Len(t, w.Commands(), 1, "nothing is sent to the new address")
	})
}

// The own host of the daemon is found by its UUID even if its Node is gone. // I13
func TestOwnHostIsFoundByUUIDWithoutItsNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		own := func(o *engine.Options) { o.Own = hosts.Own{MachineID: "machine-n-1"} }
		w.SetReady("True")
		_, _, stop := start(t, w, store, own)
		time.Sleep(time.Second)
		stop()
		w.RemoveNode()
		w.ChangeEntry(func(h *bmc.Host) { h.PinnedUUID = hostUUID })
		e := running(t, w, store, own)
		time.Sleep(time.Minute)
		untouched(t, w, e)
		gate(t, e, reason.OwnHost)
	})
}

// After a refusal the run uses a password that was corrected.
func TestCorrectedPasswordIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.FailReads(refusedAccount())
		time.Sleep(time.Minute)
		require.Equal(t, "BMCAuth", string(only(t, e).Reason))
		require.Zero(t, w.Count(bmc.CommandOn), "a BMC that refused the account is spared")
		w.FailReads(nil)
		time.Sleep(6 * time.Minute)
		assert.NotZero(t, w.Count(bmc.CommandOn), "the host is back on")
		assert.Zero(t, w.Isolations())
	})
}

// Runs that end without an action start more and more rarely, and explain says why.
func TestRunsWithoutAnActionBackOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := nodePolicy()
		p.Strategy, p.ShortenOnEvidence = policy.DeleteMachines, true // a run itself reads no BMC for this
		p.Conditions[0].Timeout = time.Hour
		w.SetPower(false)
		w.ownMachines()
		e := running(t, w, store, withPolicy(w, p))
		time.Sleep(30 * time.Minute)
		runs := e.Runs("c")
		require.Greater(t, len(runs), 5)
		assert.Less(t, len(runs), 11, "after 10, 20, 40 s and so on")
		assert.Equal(t, remediate.Aborted, runs[0].Step)
		g := gate(t, e, reason.PowerInterval)
		assert.Equal(t, "backOff", g.Name)
		assert.Equal(t, "10m0s", g.Threshold, "and no more seldom than that")
		assert.True(t, g.Until.After(time.Now()))
	})
}

// The host of the etcd member that serves the owner's watch dies silently, which takes
// long to notice, while all other requests go to the next member. A stop that is set at
// the other instance meanwhile applies. // I23
func TestStopElsewhereAppliesWhileTheWatchIsDead(t *testing.T) {
	for name, stopNow := range map[string]func(t *testing.T, e *engine.Engine) error{
		"hold":  func(t *testing.T, e *engine.Engine) error { _, err := e.Hold(t.Context(), byHand); return err },
		"pause": func(t *testing.T, e *engine.Engine) error { _, err := e.Pause(t.Context(), byHand); return err },
	} {
		for given, offs := range map[time.Duration]int{55 * time.Second: 0, untilOff: 1} {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				p := newPair(t, w, store, func(_ string, o *engine.Options) { slowProof(o) })
				p.give("a")
				time.Sleep(given)
				p.store["a"].deaf.Store(true)
				require.NoError(t, stopNow(t, p.engine["b"]))
				time.Sleep(3 * time.Minute)
				assert.Equal(t, offs, w.Count(bmc.CommandOff), "%s at %s", name, given)
				assert.Zero(t, w.Isolations(), "%s at %s", name, given)
				assert.True(t, w.On())
			})
		}
	}
}

// A BMC that falls silent during a run is told when it begins, and not at each look; one that
// answers every other look, once a minute at most.
func TestSilentBMCOfARunIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Run.OffDeadline = time.Hour })
		time.Sleep(70 * time.Second)
		require.Equal(t, remediate.PowerOff, only(t, e).Step)
		told := func() []event.Event {
			return eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Failed && ev.Run != "" })
		}
		require.Empty(t, told())
		w.FailReads(noAnswer())
		time.Sleep(10 * time.Minute)
		require.Len(t, told(), 1)
		assert.Equal(t, "BMCUnreachable", string(told()[0].Reason))
		assert.Contains(t, told()[0].Message, "no answer")
		assert.Equal(t, remediate.PowerOff, told()[0].Step)
		for i := range 150 {
			if i%2 == 0 {
				w.FailReads(nil)
			} else {
				w.FailReads(noAnswer())
			}
			time.Sleep(4 * time.Second)
		}
		assert.Greater(t, len(told()), 3)
		assert.LessOrEqual(t, len(told()), 12, "in 10 minutes")
	})
}

// reboots is a BMC that restarts: it neither answers nor takes commands meanwhile.
type reboots struct {
	bmc.Power
	away *atomic.Bool
}

func (b reboots) Read(ctx context.Context) (bmc.Reading, error) {
	if b.away.Load() {
		return bmc.Reading{}, noAnswer()
	}
	return b.Power.Read(ctx)
}

func (b reboots) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if b.away.Load() {
		return bmc.Receipt{}, noAnswer()
	}
	return b.Power.Send(ctx, c)
}

// The BMC does not accept the Off of the second attempt. Meanwhile the slow kubelet
// registers and the Node is Ready. The Off is not sent again, and the run ends Done. // I4
func TestSecondAttemptSparesANodeThatBecameReady(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		var away atomic.Bool
		var once sync.Once
		e := running(t, w, store, func(o *engine.Options) {
			o.Run.ReadyTimeout = 40 * time.Second
			o.Open = func(bmc.Device) (bmc.Power, error) { return reboots{w.bmc(), &away}, nil }
		})
		began := make(chan struct{})
		store.watch(func(run []byte) {
			if bytes.Contains(run, []byte(`"attempt":2`)) && bytes.Contains(run, []byte(`"intent":{"action":"SendOff"`)) {
				once.Do(func() { away.Store(true); close(began) })
			}
		})
		w.SetBootTime(never) // the kubelet is slow: it has not registered before that
		<-began
		w.SetBootTime(19 * time.Second)
		time.Sleep(25 * time.Second)
		require.True(t, w.Ready())
		away.Store(false)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, 1, w.Count(bmc.CommandOff), "Off to a Node that is Ready")
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
	})
}

// Libraries and external programs get more time, and never less than is configured.
func TestTiming(t *testing.T) {
	const read = 5 * time.Second
	for driver, want := range map[bmc.Driver]bmc.Timing{
		bmc.DriverIPMI:       {ReadTimeout: read, SendTimeout: power.SendTimeout},
		bmc.DriverRedfish:    {ReadTimeout: read, SendTimeout: power.SendTimeout},
		bmc.DriverBMCLib:     {ReadTimeout: power.AgentReadTimeout, SendTimeout: power.AgentSendTimeout},
		bmc.DriverFenceAgent: {ReadTimeout: power.AgentReadTimeout, SendTimeout: power.AgentSendTimeout},
	} {
		assert.Equal(t, want, power.Timing(bmc.Device{Driver: driver}, read), driver)
	}
	assert.Equal(t, time.Minute, power.Timing(bmc.Device{Driver: bmc.DriverFenceAgent}, time.Minute).ReadTimeout)
}

// For how long a run waits for the pods of its Node is reported once, when that is over. // I7
func TestWaitForPodsIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.Pods["n-1"] = 2 })
		e, events, _ := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
		waits := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Waited })
		require.Len(t, waits, 1)
		assert.Regexp(t, `^waited \d+s for pod default/web-0, default/web-1$`, waits[0].Message)
		assert.Equal(t, remediate.PowerOn, waits[0].Step)
	})
}
