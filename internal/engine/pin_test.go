package engine_test

import (
	"strings"
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
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// checked is a health check of n-1's first device that read this UUID and serial.
func checked(t *testing.T, e *engine.Engine, uuid, serial string) hosts.Checked {
	t.Helper()
	s := subject(t, e)
	require.NoError(t, s.Err)
	r := bmc.Reading{State: bmc.On, At: time.Now(), Session: 1, Identity: bmc.Identity{UUID: uuid, Serial: serial}}
	return hosts.Checked{Subject: s, At: time.Now(), Reading: r, Identity: e.Identify(t.Context(), s, 0, 0, r)}
}

// checkHealthy lets a health check find n-1's own BMC.
func checkHealthy(t *testing.T, e *engine.Engine) {
	t.Helper()
	k := checked(t, e, hostUUID, "ABC1234")
	require.Equal(t, guard.IdentityMatches, k.Identity)
	e.Checked(t.Context(), k)
}

func pinOf(t *testing.T, store state.Store, host string) state.Pin {
	t.Helper()
	p, err := state.LoadPin(t.Context(), store, host)
	if err != nil {
		require.ErrorIs(t, err, state.ErrNotFound)
	}
	return p
}

// The identity is pinned once while the host is healthy. It identifies the host when its
// Node is gone. // I10
func TestIdentityIsPinnedWhileHealthy(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		checkHealthy(t, e)
		assert.Empty(t, pinOf(t, store, "c/n-1").SystemUUID, "its Node is not Ready")
		w.SetReady("True")
		time.Sleep(2 * time.Second)
		wrong := checked(t, e, "4c4c4544-0042-3510-8054-b4c04f4d9999", "")
		e.Checked(t.Context(), wrong)
		assert.Equal(t, guard.IdentityDiffers, wrong.Identity)
		assert.Empty(t, pinOf(t, store, "c/n-1").SystemUUID, "another machine answers")
		checkHealthy(t, e)
		first := pinOf(t, store, "c/n-1")
		assert.Equal(t, hostUUID, first.SystemUUID)
		assert.Equal(t, "ABC1234", first.Serial)
		assert.Equal(t, "192.0.2.1", first.Devices)
		time.Sleep(time.Minute)
		checkHealthy(t, e)
		assert.Equal(t, first, pinOf(t, store, "c/n-1"), "written on a change only")
	})
}

// The serial number that was pinned with this UUID is the second factor. // I8
func TestOtherSerialIsAnotherMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		checkHealthy(t, e)
		assert.Equal(t, guard.IdentityMatches, checked(t, e, hostUUID, "").Identity, "not told is not contradicted")
		assert.Equal(t, guard.IdentityMatches, checked(t, e, hostUUID, "To be filled by O.E.M.").Identity)
		assert.Equal(t, guard.IdentityDiffers, checked(t, e, hostUUID, "XYZ9876").Identity)
	})
}

// If the address of a BMC changes in hosts.d, fenced follows it, but a device at the new
// address is no longer enrolled.
func TestEnrolmentEndsWithTheDevices(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		_, levels := withOutlet(w)
		e, _ := enrolled(t, w, store, levels)
		assert.Equal(t, "ada (uid 1000)", pinOf(t, store, "c/n-1").EnrolledBy)
		s := subject(t, e)
		assert.Empty(t, e.Forbidden(t.Context(), s))
		assert.Equal(t, guard.IdentityMatches, e.Identify(t.Context(), s, 1, 0, bmc.Reading{}))
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[1].Devices[0].Parameters = map[string]string{"plug": "8"} })
		s = subject(t, e)
		assert.Equal(t, guard.IdentityNotEnrolled, e.Identify(t.Context(), s, 1, 0, bmc.Reading{}))
		checkHealthy(t, e)
		p := pinOf(t, store, "c/n-1")
		assert.Empty(t, p.EnrolledBy)
		assert.Contains(t, p.Devices, " 8")
		s = subject(t, e)
		assert.Equal(t, guard.IdentityNotEnrolled, e.Identify(t.Context(), s, 1, 0, bmc.Reading{}))
		assert.Equal(t, reason.NotEnrolled, e.Forbidden(t.Context(), s)[0].Reason)
	})
}

// An outlet is enrolled for a machine, not for a name: if another machine gets the name,
// the outlet is not switched for it. // I8
func TestEnrolmentIsForOneMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, levels := withOutlet(w)
		e, _ := enrolled(t, w, store, levels)
		s := subject(t, e)
		s.SystemUUID = "4c4c4544-0042-3510-8054-b4c04f4d9999"
		assert.Equal(t, guard.IdentityNotEnrolled, e.Identify(t.Context(), s, 1, 0, bmc.Reading{}))
	})
}

// An enrolment is refused if the devices contradict it.
func TestEnrollRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world, p *fake.OutletHandle)
		want  reason.Code
	}{
		"another machine answers": {func(w *world, _ *fake.OutletHandle) { w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999") }, reason.IdentityMismatch},
		"no UUID, and reads Off":  {func(w *world, _ *fake.OutletHandle) { w.SetBMCUUID(""); w.SetPower(false) }, reason.IdentityUnknown},
		"the BMC is silent":       {func(w *world, _ *fake.OutletHandle) { w.FailReads(noAnswer()) }, "BMCUnreachable"},
		"an outlet of another one": {func(w *world, p *fake.OutletHandle) {
			w.SetReady("True")
			p.Change(func(o *fake.Outlet) { o.On = false })
		}, "BMCUnreachable"},
		"the outlet reads Off": {func(w *world, p *fake.OutletHandle) { w.SetReady("True"); w.SetPower(false) }, reason.IdentityMismatch},
		"no Node":              {func(w *world, _ *fake.OutletHandle) { w.RemoveNode() }, reason.IdentityUnknown},
		"no host":              {func(w *world, _ *fake.OutletHandle) { w.DropEntry() }, reason.NoHost},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			p, levels := withOutlet(w)
			c.spoil(w, p)
			e := running(t, w, store, levels)
			time.Sleep(time.Second)
			notEnrolled(t, e, c.want)
			assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)
		})
	}
}

// Who is asked to enroll what was shown enrolls that: whoever writes a BareMetalHost may have changed its address before the name was
// typed, and a BMC that reports no UUID says nothing of that. // I8, I10
func TestEnrolsWhatWasShown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBMCUUID("")
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		given := byHand
		given.Shown = must.Do(e.Enroll(t.Context(), dryRun(byHand)))(t).Shown()
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].Endpoint.Host = "192.0.2.99" })
		_, err := e.Enroll(t.Context(), given)
		refusedFor(t, err, reason.AddressChanged)
		assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)

		given.Shown = must.Do(e.Enroll(t.Context(), dryRun(byHand)))(t).Shown()
		w.SetBMCSerial("another machine")
		_, err = e.Enroll(t.Context(), given)
		refusedFor(t, err, reason.AddressChanged)

		given.Shown = must.Do(e.Enroll(t.Context(), dryRun(byHand)))(t).Shown()
		must.Do(e.Enroll(t.Context(), given))(t)
		assert.NotEmpty(t, pinOf(t, store, "c/n-1").EnrolledBy)
	})
}

// All that an enrolment stores is part of that: the MAC addresses by which a BMC without a UUID is known, and the Secret whose password it is
// sent. // I8, I10
func TestEnrolsTheHardwareAndTheSecretThatWereShown(t *testing.T) {
	scene(t, "the MAC addresses", func(t *testing.T, w *world, store *failingStore) {
		w.SetBMCUUID("")
		macs := []string{"b8:ca:3a:00:00:01"}
		e := running(t, w, store, func(o *engine.Options) {
			o.Open = func(bmc.Device) (bmc.Power, error) { return described{w.bmc(), macs, false}, nil }
		})
		time.Sleep(time.Second)
		given := byHand
		given.Shown = must.Do(e.Enroll(t.Context(), dryRun(byHand)))(t).Shown()
		macs = []string{"b8:ca:3a:00:00:99"}
		_, err := e.Enroll(t.Context(), given)
		refusedFor(t, err, reason.AddressChanged)
		assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)
	})
	scene(t, "the Secret", func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-2", func(*policy.Host) {})
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		given := byHand
		given.Shown = must.Do(e.Enroll(t.Context(), dryRun(byHand)))(t).Shown()
		m.set("h-1", func(h *policy.Host) { h.CredentialsName = "bmc-h-2" })
		time.Sleep(time.Second)
		_, err := e.Enroll(t.Context(), given)
		refusedFor(t, err, reason.AddressChanged)
		assert.Empty(t, pinOf(t, store, "c/ns/h-1").EnrolledBy)
	})
}

// In identity mode pinned only what a person has enrolled counts.
func TestPinnedModeRequiresAnEnrolment(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ChangeEntry(func(h *bmc.Host) { h.IdentityMode = "pinned" })
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.NotEnrolled)
		assert.Equal(t, hostUUID, must.Do(e.Enroll(t.Context(), dryRun(byHand)))(t).Devices[0].UUID)
		assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)
		enroll(t, e)
		time.Sleep(2 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// An enrolment replaces the identity of a device that reports none. If a device reports
// that it belongs to another machine, that counts: its address has changed since. // I8
func TestReportedIdentityOverridesTheEnrolment(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const other = "4c4c4544-0042-3510-8054-b4c04f4d9999"
		w.ChangeEntry(func(h *bmc.Host) {
			h.Levels[0].Devices[0].Driver, h.Levels[0].Devices[0].Provider = bmc.DriverBMCLib, "gofish"
		})
		e, _ := enrolled(t, w, store, nil)
		w.SetBMCUUID(other)
		assert.Equal(t, guard.IdentityDiffers, checked(t, e, other, "").Identity)
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff), "another machine was switched off")
		notEnrolled(t, e, reason.IdentityMismatch)
	})
}

// If the answer of the store was lost, an enrolment that was ended no longer counts, and
// one that was made can be made again. // I8
func TestPinSavedWithoutAnAnswerCounts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		lives(w)
		store := &muteStore{Store: inner, kind: state.KindPin}
		lose := func() { store.mu.Lock(); store.mute = 1; store.mu.Unlock() }
		_, levels := withOutlet(w)
		e := running(t, w, store, levels)
		time.Sleep(time.Second)
		lose()
		_, err := e.Enroll(t.Context(), byHand)
		require.Error(t, err)
		_, err = e.Enroll(t.Context(), byHand)
		require.Error(t, err, "another pin stands by now")
		enroll(t, e)
		outletReads(t, e, bmc.Off)
		time.Sleep(time.Minute)
		lose()
		for range 2 {
			outletReads(t, e, bmc.Off)
		}
		require.Empty(t, pinOf(t, inner, "c/n-1").EnrolledBy)
		subject := subject(t, e)
		var reasons []reason.Code
		for _, r := range e.Forbidden(t.Context(), subject) {
			reasons = append(reasons, r.Reason)
		}
		assert.Contains(t, reasons, reason.NotEnrolled)
	})
}

const spareUUID = "4c4c4544-0042-3510-8054-b4c04f4d7777"

// movesToSpare has another machine take over the name n-1. The old one stays at its BMC, for
// something else.
func movesToSpare(w *world) {
	w.Do(func(s *fake.State) {
		s.Host("n-1").Kernel = fake.Dead // it is no part of the cluster any more
		s.ChangeNode("n-1", func(n *fake.Node) {
			n.SystemUUID, n.BootID, n.Ready, n.Since = spareUUID, "spare-boot-1", "True", time.Now()
		})
	})
}

// movesBack has the Node n-1 be Ready on its own machine.
func movesBack(w *world) {
	w.Do(func(s *fake.State) {
		s.ChangeNode("n-1", func(n *fake.Node) {
			n.SystemUUID, n.BootID, n.Ready, n.Since = hostUUID, "boot-back", "True", time.Now()
		})
	})
}

// unreadable is a health check of n-1's first device that fails.
func unreadable(t *testing.T, e *engine.Engine) {
	t.Helper()
	k := checked(t, e, "", "")
	k.Reading, k.Err = bmc.Reading{}, noAnswer()
	e.Checked(t.Context(), k)
}

// pinnedOnce is a world whose n-1 is healthy, and was pinned.
func pinnedOnce(t *testing.T, w *world, store *failingStore) (*engine.Engine, *event.Stream, func()) {
	t.Helper()
	w.Recover()
	w.changeCheck(func(c *policy.Check) { c.StartupTimeout = 10 * time.Minute })
	e, events, stop := start(t, w, store, nil)
	time.Sleep(time.Second)
	checkHealthy(t, e)
	require.Equal(t, hostUUID, pinOf(t, store, "c/n-1").SystemUUID)
	return e, events, stop
}

// When another machine has taken over the name, what was pinned before identifies nothing: when the
// Node is gone, the machine at the old BMC may be anything. No restart, no failing store and no
// silent BMC brings the pin back. A later match makes a new one. // I8, I10
func TestContradictedPinIdentifiesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, w *world, store *failingStore, e *engine.Engine)
		restart   bool
		cycles    bool
	}{
		"the BMC answers all the while": {meanwhile: func(t *testing.T, w *world, _ *failingStore, e *engine.Engine) {
			for range 10 {
				k := checked(t, e, hostUUID, "ABC1234")
				require.Equal(t, guard.IdentityDiffers, k.Identity)
				e.Checked(t.Context(), k)
				time.Sleep(time.Minute)
			}
			require.Empty(t, w.Commands())
		}},
		"a single check of a silent BMC, and a restart": {meanwhile: func(t *testing.T, _ *world, _ *failingStore, e *engine.Engine) {
			unreadable(t, e)
		}, restart: true},
		"no check at all": {meanwhile: func(*testing.T, *world, *failingStore, *engine.Engine) {}},
		"the store fails": {meanwhile: func(t *testing.T, _ *world, store *failingStore, e *engine.Engine) {
			store.set(true)
			unreadable(t, e)
		}},
		"the store failed for a while, and a restart": {meanwhile: func(t *testing.T, w *world, store *failingStore, e *engine.Engine) {
			store.set(true)
			unreadable(t, e)
			w.RemoveNode()
			time.Sleep(2 * time.Second)
			store.set(false)
			unreadable(t, e) // shows no Node any more
		}, restart: true},
		"a check that is older than the other machine": {meanwhile: func(t *testing.T, w *world, _ *failingStore, e *engine.Engine) {
			movesBack(w)
			time.Sleep(2 * time.Second)
			old := checked(t, e, hostUUID, "ABC1234")
			movesToSpare(w)
			time.Sleep(2 * time.Second)
			e.Checked(t.Context(), old)
		}, restart: true},
		"back on its machine, and pinned again": {meanwhile: func(t *testing.T, w *world, _ *failingStore, e *engine.Engine) {
			unreadable(t, e)
			movesBack(w)
			time.Sleep(2 * time.Second)
			checkHealthy(t, e)
		}, restart: true, cycles: true},
		"back while the store fails, and pinned again": {meanwhile: func(t *testing.T, w *world, store *failingStore, e *engine.Engine) {
			store.set(true)
			unreadable(t, e)
			movesBack(w)
			time.Sleep(2 * time.Second)
			checkHealthy(t, e)
			store.set(false)
			checkHealthy(t, e)
		}, cycles: true},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			e, _, stop := pinnedOnce(t, w, store)
			movesToSpare(w)
			time.Sleep(time.Minute)
			c.meanwhile(t, w, store, e)
			if c.restart {
				stop()
				w.RemoveNode()
				e, _, _ = start(t, w, store, nil)
			}
			w.RemoveNode()
			time.Sleep(10 * time.Second)
			store.set(false)
			if !c.cycles {
				time.Sleep(time.Hour)
				assert.Zero(t, w.Count(bmc.CommandOff), "a machine that is not that of n-1 was switched off")
				assert.Equal(t, reason.IdentityUnknown, gateOfMachine(t, e).Reason)
			} else {
				await(t, func() bool { return w.Count(bmc.CommandOff) > 0 })
			}
		})
	}
}

// People are told once what is void and why.
func TestContradictedPinIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, _ := pinnedOnce(t, w, store)
		movesToSpare(w)
		time.Sleep(time.Minute)
		for range 3 {
			unreadable(t, e)
		}
		told := eventsOf(t, events, func(ev event.Event) bool { return strings.Contains(ev.Message, "was seen on the machine") })
		require.Len(t, told, 1)
		assert.Equal(t, []string{"n-1", string(reason.IdentityMismatch)}, []string{told[0].Node, string(told[0].Reason)})
		assert.Equal(t, pinOf(t, store, "c/n-1").Contradicted, told[0].Message)
		for _, uuid := range []string{hostUUID, spareUUID} {
			assert.Contains(t, told[0].Message, uuid)
		}
		w.RemoveNode()
		time.Sleep(15 * time.Minute)
		assert.Contains(t, gateOfMachine(t, e).Value, "was seen on the machine", "the refusal says it, too")
	})
}

// Letter case and byte order of a UUID contradict nothing.
func TestSameUUIDInAnotherFormContradictsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, _ := pinnedOnce(t, w, store)
		for _, uuid := range []string{strings.ToUpper(hostUUID), bmc.UUIDForms(hostUUID)[1], "", "03000200-0400-0500-0006-000700080009"} {
			w.Do(func(s *fake.State) { s.ChangeNode("n-1", func(n *fake.Node) { n.SystemUUID = uuid }) })
			time.Sleep(2 * time.Second)
			unreadable(t, e)
			assert.Empty(t, pinOf(t, store, "c/n-1").Contradicted, uuid)
		}
	})
}

// What a person enrolled is void in the same way, and counts again when the Node is Ready on the
// machine for which it was enrolled. // I8
func TestContradictedEnrolmentIsVoid(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lives(w)
		p, levels := withOutlet(w)
		w.changeCheck(func(c *policy.Check) { c.StartupTimeout = 10 * time.Minute })
		e, _ := enrolled(t, w, store, levels)
		outlet := func() guard.IdentityVerdict { return outletOf(t, e, bmc.On).Identity }
		require.Equal(t, guard.IdentityMatches, outlet())
		movesToSpare(w)
		time.Sleep(2 * time.Second)
		outletReads(t, e, bmc.On)
		require.NotEmpty(t, pinOf(t, store, "c/n-1").Contradicted)
		movesBack(w)
		time.Sleep(2 * time.Second)
		require.Equal(t, guard.IdentityNotEnrolled, outlet(), "until a health check")
		outletReads(t, e, bmc.On)
		require.Equal(t, guard.IdentityMatches, outlet())
		require.Equal(t, "ada (uid 1000)", pinOf(t, store, "c/n-1").EnrolledBy)

		movesToSpare(w)
		time.Sleep(2 * time.Second)
		w.RemoveNode()
		w.FailReads(noAnswer()) // of the BMC: only the outlet is left
		time.Sleep(time.Second)
		require.Equal(t, guard.IdentityNotEnrolled, outlet())
		s := subject(t, e)
		assert.Contains(t, e.Forbidden(t.Context(), s)[0].Message, "was seen on the machine "+spareUUID)
		time.Sleep(time.Hour)
		assert.Empty(t, p.Commands())
	})
}

// With identity: pinned the Node's machine is not compared with the BMC. So an enrolment for
// another machine than the Node's must not count even while the Node is there: the old machine would
// be proven off, and the Node of the running one be deleted. // I8
func TestPinnedModeFencesNoNodeOfAnotherMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Recover()
		w.ChangeEntry(func(h *bmc.Host) { h.IdentityMode = "pinned" })
		e, _ := enrolled(t, w, store, nil)
		movesToSpare(w)
		time.Sleep(time.Minute)
		w.SetReady("Unknown")
		w.SetLeaseMoving(false)
		time.Sleep(time.Hour)
		assert.Empty(t, w.Commands())
		gate(t, e, reason.NotEnrolled)
	})
}

// What an administrator has written down is about the machine that has left the name, too. No health check
// and no pin is needed to see that. // I8
func TestWrittenUUIDFencesNoNodeOfAnotherMachine(t *testing.T) {
	for _, mode := range []string{"required", "pinned"} {
		scene(t, mode, func(t *testing.T, w *world, store *failingStore) {
			w.Recover()
			w.ChangeEntry(func(h *bmc.Host) { h.IdentityMode, h.PinnedUUID = mode, hostUUID })
			e := running(t, w, store, nil)
			movesToSpare(w)
			time.Sleep(time.Minute)
			w.SetReady("Unknown")
			w.SetLeaseMoving(false)
			time.Sleep(time.Hour)
			assert.Zero(t, w.Isolations())
			assert.Empty(t, w.Commands())
			gate(t, e, reason.IdentityMismatch)
		})
	}
}

// A device that cannot prove its identity, but reports at one check that it is another machine's,
// was enrolled for something else. // I8
func TestReportOfAnotherMachineEndsTheEnrolment(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ChangeEntry(func(h *bmc.Host) {
			h.Levels[0].Devices[0].Driver, h.Levels[0].Devices[0].Provider = bmc.DriverBMCLib, "gofish"
		})
		e, _ := enrolled(t, w, store, nil)
		e.Checked(t.Context(), checked(t, e, hostUUID, ""))
		require.NotEmpty(t, pinOf(t, store, "c/n-1").EnrolledBy)
		e.Checked(t.Context(), checked(t, e, spareUUID, ""))
		assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)
		assert.Equal(t, guard.IdentityNotEnrolled, checked(t, e, "", "").Identity, "although it reports nothing now")
	})
}
