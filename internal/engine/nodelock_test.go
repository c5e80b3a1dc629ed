package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// lockOf is medik8s' Lease on n-1; the zero value if there is none.
func (w *world) lockOf() (l fake.NodeLock) {
	w.Do(func(s *fake.State) { l = s.NodeLocks["n-1"] })
	return l
}

func (w *world) installMedik8s() { w.Do(func(s *fake.State) { s.Medik8s = true }) }

// A run holds medik8s' Lease on its Node from before its first command until its end.
func TestRunHoldsTheNodeLock(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		e := running(t, w, store, nil)
		require.Eventually(t, func() bool { return len(w.Commands()) > 0 }, 10*time.Minute, time.Second)
		r := only(t, e)
		assert.Equal(t, r.ID, w.lockOf().Run)
		for only(t, e).Step != remediate.Done {
			assert.False(t, w.lockOf().Expired())
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		assert.Empty(t, w.lockOf(), "it is given back")
	})
}

// While medik8s has the Node, fenced leaves it alone. When medik8s is done, fenced goes on.
func TestNodeLockOfMedik8sIsWaitedFor(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.Do(func(s *fake.State) {
			s.NodeLocks["n-1"] = fake.NodeLock{Holder: "NodeHealthCheck-x", Renewed: time.Now().Add(10 * time.Minute)}
		})
		e := running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Contains(t, gate(t, e, reason.Contested).Value, "NodeHealthCheck-x")
		assert.Empty(t, w.Commands())
		time.Sleep(30 * time.Minute) // it has expired
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// lockKube changes how the API server answers LockNode.
type lockKube struct {
	engine.Kube
	lock func(ctx context.Context, r remediate.Run) error
}

func (k lockKube) LockNode(ctx context.Context, r remediate.Run) (time.Duration, string, error) {
	if err := k.lock(ctx, r); err != nil {
		return 0, "", err
	}
	return k.Kube.LockNode(ctx, r)
}

func withLock(lock func(ctx context.Context, r remediate.Run) error) func(*engine.Options) {
	return func(o *engine.Options) { o.Clusters[0].Kube = lockKube{o.Clusters[0].Kube, lock} }
}

// Without medik8s' Lease nothing destructive is done, whether the API server refuses it or
// does not answer. Once it can be taken, the run goes on.
func TestNoCommandWithoutTheNodeLock(t *testing.T) { // I22
	for name, fail := range map[string]func(ctx context.Context) error{
		"refused": func(context.Context) error { return errors.New("forbidden") },
		"hangs":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.installMedik8s()
			mended := time.Now().Add(30 * time.Minute)
			e := running(t, w, store, withLock(func(ctx context.Context, _ remediate.Run) error {
				if time.Now().Before(mended) {
					return fail(ctx)
				}
				return nil
			}))
			time.Sleep(29 * time.Minute)
			assert.Empty(t, w.Commands())
			assert.Zero(t, w.Isolations())
			time.Sleep(2 * time.Hour)
			assert.True(t, slices.ContainsFunc(e.Runs("c"), func(r remediate.Run) bool { return r.Step == remediate.Done }))
			assert.Equal(t, 1, w.Isolations())
		})
	}
}

// After the isolation nothing waits for the Lease: the host is brought back although it can
// neither be renewed nor given back.
func TestNodeLockDelaysNoWayBack(t *testing.T) { // I20, I22
	run := func(t *testing.T, lock func(ctx context.Context, r remediate.Run) error) (took time.Duration) {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.installMedik8s()
			e := running(t, w, store, withLock(lock))
			began := time.Now()
			require.Eventually(t, func() bool { return len(e.Runs("c")) == 1 && only(t, e).Step == remediate.Done }, time.Hour, time.Second)
			took = time.Since(began)
			assert.Equal(t, 1, w.Isolations())
		})
		return took
	}
	usual := run(t, func(context.Context, remediate.Run) error { return nil })
	hung := run(t, func(ctx context.Context, r remediate.Run) error {
		if r.Isolated.IsZero() {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	assert.Equal(t, usual, hung, "in virtual time")
}

// A run that has lost its Lease after the isolation takes it again before it deletes the Machine.
func TestLostNodeLockIsTakenAgain(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.ownMachines()
		w.SetBootTime(never)
		var held []string
		e := running(t, w, store, func(o *engine.Options) {
			o.Run.MaxAttempts, o.Clusters[0].Reprovision = 1, true
			o.Clusters[0].Kube = actKube{o.Clusters[0].Kube, func(a remediate.Action) {
				if a == remediate.DeleteTargetMachine {
					held = append(held, w.lockOf().Run)
				}
			}}
		})
		until(t, e, remediate.AwaitNode)
		w.Do(func(s *fake.State) { delete(s.NodeLocks, "n-1") })
		time.Sleep(30 * time.Minute)
		r := stands(t, e, remediate.Reprovisioned)
		assert.Equal(t, []string{r.ID}, held)
	})
}

// actKube tells of each write before it is done.
type actKube struct {
	engine.Kube
	before func(remediate.Action)
}

func (k actKube) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	k.before(a)
	return k.Kube.Act(ctx, r, a, backups, b)
}

// A run that another process, or another instance with the same store, takes up has its
// Lease already.
func TestNodeLockOutlivesARestart(t *testing.T) { // I20, I22
	for _, at := range []time.Duration{63, 66, 70, 76, 82, 95} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.installMedik8s()
			_, _, stop := start(t, w, store, nil)
			time.Sleep(at * time.Second)
			before := w.lockOf()
			stop()
			assert.Equal(t, before.Run, w.lockOf().Run, "stopped after %ds: an open run keeps it", at)
			e := running(t, w, store, nil)
			time.Sleep(10 * time.Minute)
			assert.Equal(t, remediate.Done, only(t, e).Step, "stopped after %ds", at)
			assert.Equal(t, 1, w.Isolations())
		})
	}
}

// A run that is Held keeps the Node, for as long as it is open.
func TestHeldRunKeepsTheNodeLock(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.Do(func(s *fake.State) { s.Host("n-1").BMC.Fault = fake.IgnoresOff })
		e := running(t, w, store, func(o *engine.Options) { o.Run.RetryInterval = 0 })
		time.Sleep(20 * time.Minute)
		r := stands(t, e, remediate.Held)
		assert.Equal(t, r.ID, w.lockOf().Run)
		assert.False(t, w.lockOf().Expired())
		abort := byHand
		abort.Run = r.ID
		accepted(t)(e.Abort(t.Context(), abort))
		assert.Eventually(t, func() bool { return w.lockOf().Run != r.ID }, 5*time.Minute, time.Second, "it is given back")
	})
}

// deadUnlock is an API server that fenced did not live to ask for the end of the Lease.
type deadUnlock struct{ engine.Kube }

func (deadUnlock) UnlockNode(context.Context, remediate.Run) error { return errors.New("killed") }

// The Lease of a run that ended just before fenced was killed ends by itself, and the next run takes
// it over.
func TestNodeLockThatIsLeftEnds(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = deadUnlock{o.Clusters[0].Kube} })
		r := until(t, e, remediate.Done)
		require.Equal(t, r.ID, w.lockOf().Run, "left behind")
		stop()
		e = running(t, w, store, nil)
		time.Sleep(fake.LockDuration + time.Minute)
		assert.True(t, w.lockOf().Expired(), "nobody renews it")
		time.Sleep(time.Hour)
		w.Hang()
		require.Eventually(t, func() bool { l := w.lockOf(); return l.Run != "" && l.Run != r.ID }, time.Hour, time.Second)
		require.Eventually(t, func() bool { return w.lockOf() == fake.NodeLock{} }, time.Hour, time.Second, "given back by the next run")
		assert.Len(t, e.Runs("c"), 2)
	})
}

// Metal3's provider (CAPM3) starts in the middle of a run, and requests that the host is off. The run is given up, takes
// only its own lock off, and sends no On until that request is gone. People are told. // I20, I22
func TestAbortLeavesThePowerToMetal3sOwnRemediation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Run.RetryInterval = time.Minute })
		await(t, func() bool { return w.Count(bmc.CommandOff) > 0 })
		m.Do(func(s *fake.State) { s.LockPower("h-1", true) })
		time.Sleep(10 * time.Minute)
		r := stands(t, e, remediate.Waiting, reason.PowerForbidden)
		assert.Contains(t, r.Note, fake.OtherPowerLock)
		assert.False(t, w.On())
		assert.Zero(t, w.Count(bmc.CommandOn), "the provider takes the host for off")
		assert.Zero(t, w.Isolations())
		m.Do(func(s *fake.State) {
			_, ours := s.Metal["h-1"].Annotations["reboot.metal3.io/fenced"]
			_, theirs := s.Metal["h-1"].Annotations[fake.OtherPowerLock]
			assert.Equal(t, []bool{false, true}, []bool{ours, theirs})
		})
		waits := eventsOf(t, events, func(ev event.Event) bool {
			return ev.Type == event.Stepped && ev.Step == remediate.Waiting && ev.Reason == reason.PowerForbidden
		})
		assert.Len(t, waits, 1)

		m.Do(func(s *fake.State) { s.LockPower("h-1", false) })
		time.Sleep(3 * time.Minute)
		assert.True(t, w.On())
		r, _ = engine.NewLookup(e).Run("c", r.ID)
		assert.Equal(t, []any{remediate.Aborted, reason.Contested}, []any{r.Step, r.Reason}, r.Note)
	})
}

// Somebody else wants the host off before any run: no run begins, and no command is sent, until that is over. // I22
func TestHostOfAnotherRemediatorIsFencedAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.Do(func(s *fake.State) { s.LockPower("h-1", true) })
		e := running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		require.Empty(t, e.Runs("c"))
		assert.Contains(t, gate(t, e, reason.Contested).Value, fake.OtherPowerLock)
		assert.Empty(t, w.Commands())
		m.Do(func(s *fake.State) { s.LockPower("h-1", false) })
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// metal gives the world BareMetalHosts instead of an entry in hosts.d: "h-1", which is
// that of m-1, and others. Their Secret can be read.
type metal struct{ *world }

func newMetal(w *world) metal {
	w.DropEntry()
	m := metal{w}
	m.set("h-1", func(*policy.Host) {})
	m.use("h-1")
	return m
}

// set changes a BareMetalHost, or makes it.
func (m metal) set(name string, change func(*policy.Host)) {
	m.Do(func(s *fake.State) {
		address := fmt.Sprintf("ipmi://192.0.2.%d", 10+len(s.Metal))
		s.ChangeMetal(name, func(h *policy.Host) {
			if h.Address == "" {
				h.Address, h.CredentialsName = address, "bmc-"+name
				s.Secrets[h.CredentialsName] = fake.Account{User: "admin", Password: bmc.NewSecret("hush")}
			}
			change(h)
		})
	})
}

func (m metal) drop(name string) { m.Do(func(s *fake.State) { s.DropMetal(name) }) }

// use has m-1 name a BareMetalHost as its own.
func (m metal) use(name string) { m.useOn("n-1", name) }

// useOn has the Machine of a Node name a BareMetalHost as its own.
func (m metal) useOn(node, name string) {
	m.Do(func(s *fake.State) {
		s.ChangeMachine(node, func(x *policy.Machine) { x.Annotations = map[string]string{"metal3.io/BareMetalHost": "ns/" + name} })
	})
}

// secretReads is how often the Secrets were read.
func (m metal) secretReads() (n int) { m.Do(func(s *fake.State) { n = s.SecretReads }); return n }

// The serial number that the inspection found is the second factor of the identity. // I8
func TestSerialOfTheHardwareIsCompared(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-1", func(h *policy.Host) { h.Serial = "XYZ9876" })
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		assert.Equal(t, guard.IdentityDiffers, checked(t, e, hostUUID, "ABC1234").Identity)
		assert.Equal(t, guard.IdentityMatches, checked(t, e, hostUUID, "xyz 9876").Identity)
		assert.Equal(t, guard.IdentityMatches, checked(t, e, hostUUID, "").Identity)
	})
}

// If the MAC addresses contradict each other, nothing is pinned.
func TestOtherMACsAreNotPinned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		m.set("h-1", func(h *policy.Host) { h.MACs = []string{"00:1b:21:00:00:01"} })
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		k := checked(t, e, hostUUID, "")
		k.Description.MACs = []string{"00:1b:21:00:00:99"}
		e.Checked(t.Context(), k)
		assert.Empty(t, pinOf(t, store, "c/ns/h-1").SystemUUID)
		k.Description.MACs = append(k.Description.MACs, "00:1b:21:00:00:01")
		e.Checked(t.Context(), k)
		assert.Equal(t, hostUUID, pinOf(t, store, "c/ns/h-1").SystemUUID)
	})
}

// Two BareMetalHosts with the same machine are both refused, for people too. // I9
func TestDuplicateHostsAreBothRefused(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, e *engine.Engine, m metal){
		"one address": func(_ *testing.T, _ *engine.Engine, m metal) {
			m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.10:623" })
		},
		"one address, two protocols": func(_ *testing.T, _ *engine.Engine, m metal) {
			m.set("h-2", func(h *policy.Host) { h.Address = "redfish://192.0.2.10/redfish/v1/Systems/1" })
		},
		"one UUID told, in two byte orders": func(t *testing.T, e *engine.Engine, m metal) {
			m.set("h-2", func(*policy.Host) {})
			time.Sleep(2 * time.Second)
			e.Checked(t.Context(), checked(t, e, hostUUID, ""))
			other := subjectOf(t, e, "ns/h-2")
			e.Checked(t.Context(), hosts.Checked{Subject: other, Reading: bmc.Reading{Identity: bmc.Identity{UUID: "44454c4c-4200-1035-8054-b4c04f4d3132"}}})
		},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			m := newMetal(w)
			m.set("h-3", func(*policy.Host) {}) // not concerned
			m.useOn("other-0", "h-2")
			m.useOn("other-1", "h-3")
			e := running(t, w, store, nil)
			time.Sleep(2 * time.Second)
			spoil(t, e, m)
			time.Sleep(2 * time.Minute)
			assert.Empty(t, e.Runs("c"))
			assert.Contains(t, gate(t, e, reason.DuplicateHost).Value, "c/ns/h-2")
			refused(t, reason.DuplicateHost)(e.Fence(t.Context(), byHand))
			for _, key := range []string{"ns/h-1", "ns/h-2"} {
				list := e.Forbidden(t.Context(), subjectOf(t, e, key))
				require.NotEmpty(t, list, key)
				assert.Equal(t, reason.DuplicateHost, list[0].Reason)
			}
			assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-3")))

			m.drop("h-2")
			time.Sleep(2 * time.Second)
			assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-1")), "it is the only one again")
		})
	}
}

func subjectOf(t *testing.T, e *engine.Engine, bareMetalHost string) hosts.Subject {
	t.Helper()
	for s := range e.Inventory(t.Context()) {
		if s.BareMetalHost == bareMetalHost {
			return s
		}
	}
	require.Fail(t, "no such host", bareMetalHost)
	return hosts.Subject{}
}

// The inventory lists each way to a host once, and reads the API server rarely.
func TestInventory(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-1", func(h *policy.Host) { h.Serial = "ABC1234" })
		m.set("h-2", func(*policy.Host) {})
		m.set("h-3", func(h *policy.Host) { h.Address = "nonsense://x" })
		m.set("h-4", func(*policy.Host) {}) // no Machine names it
		m.useOn("other-0", "h-2")
		m.useOn("other-1", "h-3")
		m.Do(func(s *fake.State) { s.ChangeMachine("other-0", func(x *policy.Machine) { x.NodeName = "" }) })
		w.SetReady("True")
		w.setUnsynced(true)
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		unseen := slices.Collect(e.Inventory(t.Context()))
		require.Len(t, unseen, 1, "nobody knows yet whose they are")
		refusedFor(t, unseen[0].Err, reason.NotSynced)
		_, err := e.Enroll(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "new"})
		refusedFor(t, err, reason.NotSynced)
		w.setUnsynced(false)
		time.Sleep(2 * time.Second)
		list := slices.SortedFunc(e.Inventory(t.Context()), func(a, b hosts.Subject) int { return cmp.Compare(a.Node, b.Node) })
		require.Len(t, list, 3)
		assert.Equal(t, []string{"", "n-1", "other-1"}, []string{list[0].Node, list[1].Node, list[2].Node})
		s := list[1]
		assert.Equal(t, "ns/h-1", s.BareMetalHost)
		assert.Equal(t, hostUUID, s.SystemUUID)
		assert.Equal(t, "ABC1234", s.Serial)
		assert.True(t, s.Healthy)
		assert.Equal(t, "hush", s.Host.Levels[0].Devices[0].Password.Reveal())
		assert.False(t, list[0].Healthy)
		assert.Equal(t, "ns/h-2", list[0].BareMetalHost)
		refusedFor(t, list[2].Err, reason.InvalidHost)
		read := m.secretReads()
		for range 5 {
			time.Sleep(time.Minute)
			for range e.Inventory(t.Context()) {
			}
		}
		assert.Equal(t, read, m.secretReads())
		time.Sleep(6 * time.Minute)
		for range e.Inventory(t.Context()) {
		}
		assert.Greater(t, m.secretReads(), read, "they may have been changed")
		_, err = e.SubjectOf(t.Context(), "c", "nobody")
		refusedFor(t, err, reason.NoSuchNode)
	})
}

// An entry of hosts.d for the Node of a BareMetalHost is the same host.
func TestEntryBesideItsBareMetalHostIsNoDuplicate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		host := w.Entry()
		m := newMetal(w)
		w.ChangeEntry(func(h *bmc.Host) { *h = host })
		m.set("h-1", func(h *policy.Host) { h.Address = "ipmi://192.0.2.1" })
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		list := slices.Collect(e.Inventory(t.Context()))
		require.Len(t, list, 1)
		assert.Equal(t, "c/n-1", list[0].Host.Name)
		assert.Empty(t, e.Forbidden(t.Context(), list[0]))
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.1" })
		m.useOn("other-0", "h-2")
		time.Sleep(2 * time.Second)
		assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-1")), "the administrator's entry stands for it")
		assert.Len(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-2")), 1)
	})
}

// An identity that a library reports without being asked also shows a duplicate
// host. // I9
func TestDuplicateIsFoundByTheReportOfALibrary(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		host := w.Entry()
		m := newMetal(w)
		w.ChangeEntry(func(h *bmc.Host) { *h = host })
		w.by(bmc.DriverBMCLib)
		m.set("h-2", func(*policy.Host) {})
		m.useOn("other-0", "h-2")
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		e.Checked(t.Context(), checked(t, e, hostUUID, ""))
		assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-2")))
		e.Checked(t.Context(), hosts.Checked{Subject: subjectOf(t, e, "ns/h-2"), Reading: bmc.Reading{Identity: bmc.Identity{UUID: hostUUID}}})
		list := e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-2"))
		require.Len(t, list, 1)
		assert.Equal(t, reason.DuplicateHost, list[0].Reason)
	})
}
