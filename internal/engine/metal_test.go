package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

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

// If a BareMetalHost names another BMC, fenced does not follow it: only a person may
// confirm the change. // I10
func TestBareMetalHostThatMovedIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		require.Equal(t, "ipmi://192.0.2.10:623", pinOf(t, store, "c/ns/h-1").Address)
		m.set("h-1", func(h *policy.Host) { h.Address = "ipmi://192.0.2.66" })
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		assert.Equal(t, "ipmi://192.0.2.10:623", pinOf(t, store, "c/ns/h-1").Address, "no health check follows it, though the right machine answers there")
		_, err := e.Fence(t.Context(), byHand)
		refusedFor(t, err, reason.AddressChanged)
		gate(t, e, reason.AddressChanged)
		stop()
		w.Hang()
		e, _, stop = start(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Zero(t, w.Reads(), "the new address is not even asked")
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		_, err = e.Fence(t.Context(), dryRun(byHand))
		require.NoError(t, err)
		stop()
	})
}

// The serial number that the inspection found is the second factor of the identity. // I8
func TestSerialOfTheHardwareIsCompared(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-1", func(h *policy.Host) { h.Serial = "XYZ9876" })
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		assert.Equal(t, guard.IdentityDiffers, checked(t, e, hostUUID, "ABC1234").Identity)
		assert.Equal(t, guard.IdentityMatches, checked(t, e, hostUUID, "xyz 9876").Identity)
		assert.Equal(t, guard.IdentityMatches, checked(t, e, hostUUID, "").Identity)
		stop()
	})
}

// If the MAC addresses contradict each other, nothing is pinned.
func TestOtherMACsAreNotPinned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		m.set("h-1", func(h *policy.Host) { h.MACs = []string{"00:1b:21:00:00:01"} })
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		k := checked(t, e, hostUUID, "")
		k.Description.MACs = []string{"00:1b:21:00:00:99"}
		e.Checked(t.Context(), k)
		assert.Empty(t, pinOf(t, store, "c/ns/h-1").SystemUUID)
		k.Description.MACs = append(k.Description.MACs, "00:1b:21:00:00:01")
		e.Checked(t.Context(), k)
		assert.Equal(t, hostUUID, pinOf(t, store, "c/ns/h-1").SystemUUID)
		stop()
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				m := newMetal(w)
				m.set("h-3", func(*policy.Host) {}) // not concerned
				m.useOn("other-0", "h-2")
				m.useOn("other-1", "h-3")
				e, _, stop := start(t, w, store, nil)
				time.Sleep(2 * time.Second)
				spoil(t, e, m)
				time.Sleep(2 * time.Minute)
				assert.Empty(t, e.Runs("c"))
				assert.Contains(t, gate(t, e, reason.DuplicateHost).Value, "c/ns/h-2")
				_, err := e.Fence(t.Context(), byHand)
				refusedFor(t, err, reason.DuplicateHost)
				for _, key := range []string{"ns/h-1", "ns/h-2"} {
					list := e.Forbidden(t.Context(), subjectOf(t, e, key))
					require.NotEmpty(t, list, key)
					assert.Equal(t, reason.DuplicateHost, list[0].Reason)
				}
				assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-3")))

				m.drop("h-2")
				time.Sleep(2 * time.Second)
				assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-1")), "it is the only one again")
				stop()
			})
		})
	}
}

func subjectOf(t *testing.T, e *engine.Engine, bareMetalHost string) hosts.Subject {
	t.Helper()
	for _, s := range e.Inventory(t.Context()) {
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
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		unseen := e.Inventory(t.Context())
		require.Len(t, unseen, 1, "nobody knows yet whose they are")
		refusedFor(t, unseen[0].Err, reason.NotSynced)
		_, err := e.Enroll(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "new"})
		refusedFor(t, err, reason.NotSynced)
		w.setUnsynced(false)
		time.Sleep(2 * time.Second)
		list := e.Inventory(t.Context())
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
			e.Inventory(t.Context())
		}
		assert.Equal(t, read, m.secretReads())
		time.Sleep(6 * time.Minute)
		e.Inventory(t.Context())
		assert.Greater(t, m.secretReads(), read, "they may have been changed")
		_, err = e.SubjectOf(t.Context(), "c", "nobody")
		refusedFor(t, err, reason.NoSuchNode)
		stop()
	})
}

// An entry of hosts.d for the Node of a BareMetalHost is the same host.
func TestEntryBesideItsBareMetalHostIsNoDuplicate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		host := w.Entry()
		m := newMetal(w)
		w.ChangeEntry(func(h *bmc.Host) { *h = host })
		m.set("h-1", func(h *policy.Host) { h.Address = "ipmi://192.0.2.1" })
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		list := e.Inventory(t.Context())
		require.Len(t, list, 1)
		assert.Equal(t, "c/n-1", list[0].Host.Name)
		assert.Empty(t, e.Forbidden(t.Context(), list[0]))
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.1" })
		m.useOn("other-0", "h-2")
		time.Sleep(2 * time.Second)
		assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-1")), "the administrator's entry stands for it")
		assert.Len(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-2")), 1)
		stop()
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
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		e.Checked(t.Context(), checked(t, e, hostUUID, ""))
		assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-2")))
		e.Checked(t.Context(), hosts.Checked{Subject: subjectOf(t, e, "ns/h-2"), Reading: bmc.Reading{Identity: bmc.Identity{UUID: hostUUID}}})
		list := e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-2"))
		require.Len(t, list, 1)
		assert.Equal(t, reason.DuplicateHost, list[0].Reason)
		stop()
	})
}
