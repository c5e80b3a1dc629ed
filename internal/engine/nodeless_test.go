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
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

const (
	chassisSerial = "XYZ9876"
	nicMAC        = "b8:ca:3a:00:00:01"
	otherMAC      = "b8:ca:3a:00:00:99"
)

// byMachine is an order about the Machine of the first host.
var byMachine = wire.Order{Machine: "ns/m-1", Actor: "root", Reason: "test"}

// neverJoined is a world whose first Machine has had no Node for an hour, with a check
// that allows ten minutes for that, and with a BareMetalHost that was inspected.
func neverJoined(w *world) metal {
	m := newMetal(w)
	w.Do(func(s *fake.State) { s.NeverJoined("n-1", time.Now().Add(-time.Hour)) })
	w.SetBMCSerial(chassisSerial)
	w.changeCheck(func(c *policy.Check) { c.StartupTimeout = 10 * time.Minute })
	w.ownMachines()
	m.set("h-1", func(h *policy.Host) {
		h.ConsumerRef, h.ConsumerKind, h.State = "ns/m-1", "Machine.machine.openshift.io", "provisioned"
		h.Serial, h.NICs = "xyz 9876", []string{nicMAC}
		h.MACs = h.NICs
	})
	return m
}

// withMACs makes every BMC report MAC addresses of its host.
func withMACs(w *world, macs ...string) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Clusters[0].Reprovision = true
		o.Open = func(bmc.Device) (bmc.Power, error) { return described{w.bmc(), macs, false}, nil }
	}
}

// gateOfMachine returns the first failing gate of the Machine.
func gateOfMachine(t *testing.T, e *engine.Engine) reason.Gate {
	t.Helper()
	return firstRefusal(must.Do(e.ExplainMachine(t.Context(), "c", "ns/m-1"))(t))
}

// A Machine that never joined is identified by its BareMetalHost, if the BMC reports the
// hardware of the inspection: one power cycle, and its Node registers. // I8
func TestMachineThatNeverJoinedIsIdentifiedByItsHardware(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world, metal)
		macs  []string
	}{
		"by the serial number": {func(*world, metal) {}, nil},
		"by a MAC address": {func(w *world, m metal) {
			w.SetBMCSerial("")
			m.set("h-1", func(h *policy.Host) { h.Serial = "" })
		}, []string{strings.ToUpper(nicMAC)}},
		"by the serial number, without a UUID": {func(w *world, _ metal) { w.SetBMCUUID("") }, nil},
		"by the providerID": {func(w *world, _ metal) {
			w.Do(func(s *fake.State) {
				s.ChangeMachine("n-1", func(m *policy.Machine) {
					m.ProviderID, m.Annotations = "baremetalhost:///ns/h-1/uid-of-h-1", nil
				})
			})
		}, nil},
		"with a Node that is gone": {func(w *world, _ metal) {
			w.Do(func(s *fake.State) { s.ChangeMachine("n-1", func(m *policy.Machine) { m.NodeName = "n-1" }) })
		}, nil},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			c.spoil(w, neverJoined(w))
			e, events, _ := start(t, w, store, withMACs(w, c.macs...))
			time.Sleep(5 * time.Minute)
			runs := e.Runs("c")
			require.Len(t, runs, 1, "%+v", gateOfMachine(t, e))
			r := runs[0]
			assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
			assert.True(t, r.Target.ByHardware)
			assert.Equal(t, 1, r.Limits.MaxAttempts, "one power cycle")
			assert.Equal(t, []bmc.Command{bmc.CommandOff, bmc.CommandOn}, w.Commands())
			assert.True(t, w.Ready())
			assert.Empty(t, w.Deprovisioned())
			if r.Target.Node == "" {
				assert.NotEmpty(t, eventsOf(t, events, func(ev event.Event) bool { return ev.Run == r.ID && ev.Machine == "ns/m-1" }))
			}
		})
	}
}

// Each link must hold, and the hardware must be that of one machine only. Otherwise nothing
// is touched, and the refusal is told once, with what to do. // I8, I9, I10
func TestMachineWithoutANodeIsRefusedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world, metal)
		macs  []string
		code  reason.Code
		says  string
	}{
		"another serial number":  {func(w *world, _ metal) { w.SetBMCSerial("ABC1234") }, nil, reason.IdentityMismatch, `"ABC1234"`},
		"a placeholder, at both": {func(w *world, m metal) { w.SetBMCSerial("To be filled by O.E.M."); m.serial("To be filled by O.E.M.") }, nil, reason.IdentityUnknown, "no serial number"},
		"0123456789, at both":    {func(w *world, m metal) { w.SetBMCSerial("0123456789"); m.serial("0123456789") }, nil, reason.IdentityUnknown, "no serial number"},
		"None, at both":          {func(w *world, m metal) { w.SetBMCSerial("None"); m.serial("None") }, nil, reason.IdentityUnknown, "no serial number"},
		"no inspection":          {func(_ *world, m metal) { m.set("h-1", func(h *policy.Host) { h.Serial, h.NICs = "", nil }) }, []string{nicMAC}, reason.IdentityUnknown, "no serial number"},
		"other MAC addresses":    {func(*world, metal) {}, []string{otherMAC}, reason.IdentityMismatch, otherMAC},
		"a card of another machine": {func(w *world, m metal) { w.SetBMCSerial(""); m.serial("") }, []string{nicMAC, otherMAC},
			reason.IdentityUnknown, "lacks the MAC addresses " + otherMAC},
		"some of its MAC addresses": {func(w *world, m metal) { w.SetBMCSerial(""); m.serial("") }, []string{nicMAC},
			reason.IdentityUnknown, "not all of its network interfaces could be read"},
		"MAC addresses alone, and nothing with each reading": {func(w *world, m metal) {
			w.SetBMCSerial("")
			w.SetBMCUUID("")
			m.serial("")
		}, []string{nicMAC}, reason.IdentityUnknown, "neither a system UUID nor a serial number"},
		"only the MAC address of spec": {func(w *world, m metal) {
			w.SetBMCSerial("")
			m.set("h-1", func(h *policy.Host) { h.Serial, h.NICs = "", nil })
		}, []string{nicMAC}, reason.IdentityUnknown, "no serial number"},
		"no consumerRef": {func(_ *world, m metal) { m.set("h-1", func(h *policy.Host) { h.ConsumerRef = "" }) }, nil, reason.PowerOwner, ""},
		"the consumerRef of another Machine": {func(_ *world, m metal) { m.set("h-1", func(h *policy.Host) { h.ConsumerRef = "ns/m-9" }) },
			nil, reason.PowerOwner, ""},
		"a consumerRef of another kind": {func(_ *world, m metal) { m.set("h-1", func(h *policy.Host) { h.ConsumerKind = "Pod.x" }) },
			nil, reason.IdentityUnknown, "Pod.x"},
		"a host that is inspected": {func(_ *world, m metal) { m.set("h-1", func(h *policy.Host) { h.State = "inspecting" }) },
			nil, reason.IdentityUnknown, `"inspecting"`},
		"providerID and annotation differ": {func(w *world, _ metal) {
			w.Do(func(s *fake.State) {
				s.ChangeMachine("n-1", func(m *policy.Machine) {
					m.ProviderID, m.Annotations = "baremetalhost:///ns/h-1", map[string]string{"metal3.io/BareMetalHost": "ns/h-2"}
				})
			})
		}, nil, reason.IdentityUnknown, "names BareMetalHost ns/h-2"},
		"a copy with the same serial number": {func(_ *world, m metal) { m.set("h-2", func(h *policy.Host) { h.Serial = chassisSerial }) },
			nil, reason.IdentityUnknown, "same serial number"},
		"a copy with the same BMC": {func(_ *world, m metal) { m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.10" }) },
			nil, reason.DuplicateHost, ""},
		"a Node with the UUID that the BMC reports": {func(w *world, _ metal) { w.duplicateUUID() }, nil, reason.DuplicateUUID, ""},
		"identity: pinned":                          {func(w *world, _ metal) {}, nil, reason.NotEnrolled, "bmc enroll"},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			c.spoil(w, neverJoined(w))
			e, events, _ := start(t, w, store, func(o *engine.Options) {
				withMACs(w, c.macs...)(o)
				switch name {
				case "identity: pinned":
					o.Clusters[0].IdentityMode = "pinned"
				case "some of its MAC addresses":
					o.Open = func(bmc.Device) (bmc.Power, error) { return described{w.bmc(), c.macs, true}, nil }
				}
			})
			time.Sleep(20 * time.Minute)
			untouched(t, w, e)
			g := gateOfMachine(t, e)
			assert.Equal(t, c.code, g.Reason, "%+v", g)
			assert.Contains(t, g.Value, c.says)
			told := eventsOf(t, events, func(ev event.Event) bool {
				return ev.Type == event.Refused && ev.Machine == "ns/m-1" && ev.Reason != reason.NotOwner
			})
			require.Len(t, told, 1, "%+v", told)
			assert.Equal(t, c.code, told[0].Reason)
			if c.code == reason.IdentityUnknown || c.code == reason.IdentityMismatch {
				assert.Contains(t, told[0].Message, "fencectl bmc enroll --machine ns/m-1", "it says what to do")
			}
		})
	}
}

func (m metal) serial(serial string) { m.set("h-1", func(h *policy.Host) { h.Serial = serial }) }

// A host that does not join after one power cycle is installed anew, if its Machine has an
// owner and the host may be provisioned. // I14
func TestMachineThatDoesNotJoinIsReplacedAfterOneCycle(t *testing.T) {
	for name, owned := range map[string]bool{"owned": true, "without an owner": false} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			neverJoined(w)
			if !owned {
				w.eachMachine(func(m *policy.Machine) { m.ControllerOwner = policy.Owner{} })
			}
			w.SetBootTime(never)
			e := running(t, w, store, withMACs(w))
			time.Sleep(30 * time.Minute)
			r := e.Runs("c")[0]
			assert.Equal(t, 1, w.Count(bmc.CommandOff))
			if owned {
				assert.Equal(t, remediate.Reprovisioned, r.Step, r.Note)
				assert.Equal(t, []string{"n-1"}, w.Deprovisioned())
			} else {
				assert.Equal(t, remediate.Held, r.Step)
				assert.Equal(t, reason.AttemptsExhausted, r.Reason)
				assert.Empty(t, w.Deprovisioned())
			}
		})
	}
}

// The links are compared at each look: a BareMetalHost that loses its Machine before the Off
// gets none, and a BMC that reports another machine meanwhile gets no On. // I8
func TestLinkThatBreaksDuringARunWithoutANode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := neverJoined(w)
		w.Do(func(s *fake.State) { s.MembersUnknown = false })
		e := running(t, w, store, withMACs(w))
		await(t, func() bool { return len(w.Commands()) > 0 })
		w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999")
		time.Sleep(10 * time.Minute)
		r := e.Runs("c")[0]
		assert.Equal(t, reason.IdentityMismatch, r.Reason, r.Note)
		assert.Equal(t, []bmc.Command{bmc.CommandOff}, w.Commands(), "another machine answers")
		m.drop("h-1")
	})
}

// A Node with another system UUID than the BMC reported is Held for a person: not every
// BMC reports its host's, so no BMC is frozen. // I6
func TestNodeWithAnotherUUIDThanReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		neverJoined(w)
		w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999")
		e := running(t, w, store, withMACs(w))
		time.Sleep(10 * time.Minute)
		r := e.Runs("c")[0]
		assert.Equal(t, remediate.Held, r.Step)
		assert.Equal(t, reason.IdentityMismatch, r.Reason, r.Note)
		assert.Empty(t, must.Do(store.List(t.Context(), state.KindFreeze))(t))
	})
}

// A BMC that reads Off while the kubelet registers is frozen, and released by the name of
// the Machine, or of the Node that it has by then. // I5
func TestFreezeOfAMachineWithoutANodeIsReleased(t *testing.T) {
	for name, o := range map[string]wire.Order{"by the Machine": byMachine, "by the Node": byHand} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			neverJoined(w)
			w.SetFault(fake.Liar)
			w.SetBootTime(4 * time.Second)
			e := running(t, w, store, withMACs(w))
			await(t, func() bool { return len(w.Commands()) > 0 })
			w.Do(func(s *fake.State) {
				s.Host("n-1").On = true
				s.Host("n-1").Boot()
			})
			time.Sleep(time.Minute)
			r := e.Runs("c")[0]
			require.Equal(t, reason.FalseOff, r.Reason, r.Note)
			accepted(t)(e.Unfence(t.Context(), byMachine))
			w.SetFault(fake.NoFault)
			time.Sleep(10 * time.Minute)
			assert.Equal(t, remediate.Done, e.Runs("c")[0].Step, "%+v", e.Runs("c")[0])
			gate(t, e, reason.Frozen)
			assert.Empty(t, accepted(t)(e.Unfreeze(t.Context(), o)).Still)
			refused(t, reason.NotFrozen)(e.Unfreeze(t.Context(), o))
		})
	}
}

// A machine that was pinned as another host is not that of a BareMetalHost that leads to it by
// now, whatever hardware that tells. // I8, I10
func TestMachineWithoutANodeThatIsPinnedElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		neverJoined(w)
		must.Do(state.SavePin(t.Context(), store, state.Pin{Host: "c/n-9", Node: "n-9", SystemUUID: hostUUID, Address: "ipmi://192.0.2.99:623",
			Devices: "192.0.2.99"}))(t)
		e := running(t, w, store, withMACs(w))
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		g := gateOfMachine(t, e)
		assert.Equal(t, reason.IdentityMismatch, g.Reason)
		assert.Contains(t, g.Value, "was pinned at ipmi://192.0.2.99:623 (c/n-9)")
	})
}

// listedMachine is a world whose first Machine never joined. Only an entry of hosts.d with
// machine: names its BMC.
func listedMachine(w *world, uuid string) {
	entry := w.Entry()
	entry.Name, entry.PinnedUUID = bmc.EntryName("c", "ns/m-1"), uuid
	w.DropEntry()
	w.Do(func(s *fake.State) {
		s.NeverJoined("n-1", time.Now().Add(-time.Hour))
		s.Entries["ns/m-1"] = entry
	})
	w.changeCheck(func(c *policy.Check) { c.StartupTimeout = 10 * time.Minute })
	w.ownMachines()
}

// runOfMachine waits ten minutes and returns the only run.
func runOfMachine(t *testing.T, w *world, runs func(string) []remediate.Run) remediate.Run {
	t.Helper()
	time.Sleep(10 * time.Minute)
	list := runs("c")
	require.Len(t, list, 1)
	assert.Equal(t, []bmc.Command{bmc.CommandOff, bmc.CommandOn}, w.Commands())
	return list[0]
}

// An entry with machine: and the uuid identifies the BMC of a Machine without a Node. // I8
func TestEntryOfAMachineIdentifiesItsBMC(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		e := running(t, w, store, nil)
		r := runOfMachine(t, w, e.Runs)
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
		assert.Equal(t, "c/machine/ns/m-1", r.Target.Host)
		assert.False(t, r.Target.ByHardware)
		assert.Equal(t, hostUUID, r.Target.ReportedUUID)
		assert.Equal(t, 1, r.Limits.MaxAttempts)
	})
}

// Without the uuid a person enrolls the BMC by the name of the Machine. // I8, I10
func TestBMCIsEnrolledForAMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, "")
		e, events, _ := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, w.Commands())
		assert.Equal(t, reason.IdentityUnknown, gateOfMachine(t, e).Reason)
		told := eventsOf(t, events, func(ev event.Event) bool { return ev.Reason == reason.IdentityUnknown })
		require.Len(t, told, 1)
		assert.Contains(t, told[0].Message, "fencectl bmc enroll --machine ns/m-1, or write its uuid into hosts.d")
		_, err := e.Enroll(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "by the name of the Node"})
		refusedFor(t, err, reason.NoSuchNode)

		x := must.Do(e.Enroll(t.Context(), dryRun(byMachine)))(t)
		assert.Equal(t, hostUUID, x.Pin.SystemUUID, "what answers now")
		assert.Equal(t, "m-m-1", x.Pin.MachineUID)
		time.Sleep(time.Minute)
		assert.Empty(t, w.Commands(), "a dry run stores nothing")
		must.Do(e.Enroll(t.Context(), byMachine))(t)
		r := runOfMachine(t, w, e.Runs)
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
	})
}

// The name of a Machine may be given again, to one on another host: an enrolment does not
// follow the name. // I8
func TestEnrolmentOfAMachineEndsWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, "")
		w.pauseCheck()
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		must.Do(e.Enroll(t.Context(), byMachine))(t)
		o := dryRun(byMachine)
		accepted(t)(e.Fence(t.Context(), o))
		w.Do(func(s *fake.State) { s.ChangeMachine("n-1", func(m *policy.Machine) { m.UID = "another" }) })
		time.Sleep(2 * time.Second)
		refused(t, reason.IdentityUnknown)(e.Fence(t.Context(), o))
	})
}

// What a person cannot know by the report of a BMC is not enrolled. // I8, I9, I13
func TestEnrollOfAMachineRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world)
		code  reason.Code
	}{
		"no UUID":                  {func(w *world) { w.SetBMCUUID("") }, reason.IdentityUnknown},
		"a placeholder":            {func(w *world) { w.SetBMCUUID(zeroUUID) }, reason.IdentityUnknown},
		"the UUID of another Node": {func(w *world) { w.duplicateUUID() }, reason.DuplicateUUID},
		"no such Machine":          {func(w *world) { w.Do(func(s *fake.State) { delete(s.Entries, "ns/m-1"); s.RemoveMachine("n-1") }) }, reason.NoSuchMachine},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			listedMachine(w, "")
			c.spoil(w)
			e := running(t, w, store, nil)
			time.Sleep(2 * time.Second)
			_, err := e.Enroll(t.Context(), byMachine)
			refusedFor(t, err, c.code)
		})
	}
}

// Two entries for one host are refused: one names its Node, one its Machine. // I9
func TestEntriesOfANodeAndItsMachineAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) {
			entry := s.Entries["n-1"]
			entry.Name = bmc.EntryName("c", "ns/m-1")
			s.Entries["ns/m-1"] = entry
		})
		e := running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.DuplicateHost)
	})
}

// A hold of a Machine binds checks and people, and goes on to bind when the Machine gets a
// Node. // I23
func TestHoldOfAMachineBinds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		w.Do(func(s *fake.State) { s.ChangeMachine("n-1", func(m *policy.Machine) { m.LastUpdated = time.Now() }) })
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		assert.False(t, accepted(t)(e.Hold(t.Context(), byMachine)).Unseen)
		time.Sleep(20 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Equal(t, reason.Hold, gateOfMachine(t, e).Reason)
		refused(t, reason.Hold)(e.Fence(t.Context(), byMachine))
		stop()

		w.Do(func(s *fake.State) { s.Host("n-1").Boot() }) // it joins by itself, and dies
		e = running(t, w, store, nil)
		time.Sleep(time.Minute)
		require.True(t, w.Ready())
		w.Hang()
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.Hold)
		accepted(t)(e.ReleaseHold(t.Context(), byMachine))
		time.Sleep(10 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// A hold that comes during a run on a Machine without a Node brings the host back. // I23
func TestHoldOfAMachineStopsItsRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		w.SetBootTime(never)
		e := running(t, w, store, nil)
		await(t, func() bool { return len(w.Commands()) > 0 })
		accepted(t)(e.Hold(t.Context(), byMachine))
		r := runOfMachine(t, w, e.Runs)
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Equal(t, reason.Paused, r.Reason)
	})
}

// People fence, and bring back, by the name of the Machine. A Machine that has a Node is
// fenced with it.
func TestOrdersByMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		w.pauseCheck()
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		o := byMachine
		o.OffOnly = true
		out := accepted(t)(e.Fence(t.Context(), o))
		assert.Equal(t, order.Outcome{Run: out.Run, Joined: true}, accepted(t)(e.Fence(t.Context(), o)))
		time.Sleep(time.Minute)
		assert.Equal(t, reason.OperatorOff, e.Runs("c")[0].Reason)
		accepted(t)(e.Unfence(t.Context(), byMachine))
		r := runOfMachine(t, w, e.Runs)
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
		require.True(t, w.Ready())
		x := must.Do(e.ExplainMachine(t.Context(), "c", "ns/m-1"))(t)
		require.NotNil(t, x.Run, "it is shown after the Machine has got a Node, too")
		assert.Equal(t, out.Run, x.Run.ID)

		unknown := byMachine
		unknown.Machine = "ns/m-9"
		refused(t, reason.NoSuchMachine)(e.Fence(t.Context(), unknown))
		w.Hang()
		must.Do(e.Fence(t.Context(), byMachine))(t) // its Node is there by now
		time.Sleep(10 * time.Minute)
		assert.Equal(t, 1, w.Isolations())
		assert.Equal(t, "n-1", e.Runs("c")[0].Target.Node)
	})
}

// A host marked protected is not fenced by itself, whichever name its entry has. // I13
func TestEntryOfAMachineProtects(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		w.Do(func(s *fake.State) {
			entry := s.Entries["ns/m-1"]
			entry.Protected = true
			s.Entries["ns/m-1"] = entry
		})
		e := running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Equal(t, reason.Protected, gateOfMachine(t, e).Reason)
	})
}
