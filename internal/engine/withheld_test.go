package engine_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// bait is a BareMetalHost that names the Secret of h-1 and leads to an address of a
// tenant's choice. The tenant may write a Machine that names it, too.
func bait(m metal, address string) {
	m.set("h-bait", func(h *policy.Host) { h.Address, h.CredentialsName = address, "bmc-h-1" })
	m.useOn("other-0", "h-bait")
}

// No password is sent for a BareMetalHost that only names the Secret of another
// host. // I10
func TestPasswordOfAnothersSecretIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const trap = "203.0.113.66"
		m := newMetal(w)
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e) // h-1 is pinned
		s, passwords, end := sweeping(t, w, e)
		bait(m, "ipmi://"+trap)
		time.Sleep(15 * time.Minute)
		assert.Empty(t, passwords.at(trap))
		assert.Equal(t, "hush", passwords.at("192.0.2.10"), "h-1 is asked as before")
		list := e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-bait"))
		require.Len(t, list, 1)
		assert.Equal(t, reason.SecretShared, list[0].Reason)
		assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-1")))
		_, err := s.Test(t.Context(), "c", "other-0")
		refusedFor(t, err, reason.SecretShared)
		_, err = e.Fence(t.Context(), wire.Order{Node: "other-0", Actor: "root", Reason: "test"})
		refusedFor(t, err, reason.SecretShared)
		assert.Empty(t, passwords.at(trap))
		end()
		stop()
	})
}

// If many hosts share one Secret, a person confirms for each host that it is right.
func TestSharedSecretIsUsedOnceEnrolled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		bait(m, "ipmi://192.0.2.77")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		assert.Equal(t, reason.SecretShared, subjectOf(t, e, "ns/h-1").Withheld.Reason, "nobody knows yet whose it is")
		_, err := e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		assert.Nil(t, subjectOf(t, e, "ns/h-1").Withheld)
		assert.Equal(t, reason.SecretShared, subjectOf(t, e, "ns/h-bait").Withheld.Reason)
		stop()
	})
}

// fenced does not read the BMC of a BareMetalHost that no Machine names.
func TestHostWithoutAMachineIsNotRead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		m.set("h-2", func(h *policy.Host) { h.ConsumerRef = "ns/m-1" }) // it says so, and m-1 names h-1
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		_, passwords, end := sweeping(t, w, e)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, passwords.at("192.0.2.11"))
		assert.Equal(t, "hush", passwords.at("192.0.2.10"))
		end()
		stop()
	})
}

// These settings only the configuration can allow.
func TestBareMetalHostMayNotSayEverything(t *testing.T) {
	for name, c := range map[string]struct {
		says  func(*policy.Host)
		allow hosts.MetalRules
	}{
		"loopback": {
			func(h *policy.Host) { h.Address = "ipmi://127.0.0.1:6230" },
			hosts.MetalRules{Networks: &bmc.Networks{Listed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
		},
		"another network": {
			func(h *policy.Host) { h.Address = "ipmi://198.51.100.7" },
			hosts.MetalRules{Networks: &bmc.Networks{Listed: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}},
		},
		"plain HTTP": {
			func(h *policy.Host) { h.Address = "redfish+http://192.0.2.10/redfish/v1/Systems/1" },
			hosts.MetalRules{PlainHTTP: true},
		},
		"no certificate": {
			func(h *policy.Host) {
				h.Address, h.DisableCertificateVerification = "redfish://192.0.2.10/redfish/v1/Systems/1", true
			},
			hosts.MetalRules{Unverified: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				m := newMetal(w)
				m.set("h-1", c.says)
				listed := netip.MustParsePrefix("192.0.2.0/24")
				rules := hosts.MetalRules{Networks: &bmc.Networks{Listed: []netip.Prefix{listed}}}
				e, _, stop := start(t, w, store, func(o *engine.Options) { o.Metal = rules })
				time.Sleep(2 * time.Minute)
				assert.Empty(t, e.Runs("c"))
				gate(t, e, reason.InvalidHost)
				assert.Equal(t, reason.InvalidHost, subjectOf(t, e, "ns/h-1").Withheld.Reason)
				_, err := e.Enroll(t.Context(), byHand)
				refusedFor(t, err, reason.InvalidHost)
				assert.Zero(t, w.Reads())
				assert.Zero(t, m.secretReads(), "not even its Secret is read for that")
				stop()
				e, _, stop = start(t, w, store, func(o *engine.Options) { o.Metal = c.allow })
				time.Sleep(2 * time.Minute)
				assert.NotEmpty(t, e.Runs("c"))
				stop()
			})
		})
	}
}

// A BareMetalHost with the same address as an entry of hosts.d, or as a pinned host, does
// not prevent fencing of that one. // I9
func TestForeignHostForbidsNothing(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *world, *failingStore) metal{
		"an entry of hosts.d": func(_ *testing.T, w *world, _ *failingStore) metal {
			host := w.Entry()
			m := newMetal(w)
			w.ChangeEntry(func(h *bmc.Host) { *h = host; h.Levels[0].Devices[0].Endpoint.Host = "192.0.2.10" })
			return m
		},
		"a pinned one": func(t *testing.T, w *world, store *failingStore) metal {
			m := newMetal(w)
			w.SetReady("True")
			e, _, stop := start(t, w, store, nil)
			time.Sleep(2 * time.Second)
			checkHealthy(t, e)
			stop()
			w.Hang()
			return m
		},
		"an enrolled one": func(t *testing.T, w *world, store *failingStore) metal {
			m := newMetal(w)
			e, _, stop := start(t, w, store, nil)
			time.Sleep(2 * time.Second)
			_, err := e.Enroll(t.Context(), byHand)
			require.NoError(t, err)
			stop()
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				m := begin(t, w, store)
				m.set("h-bait", func(h *policy.Host) { h.Address = "redfish://192.0.2.10/redfish/v1/Systems/1" })
				m.Do(func(s *fake.State) {
					s.Secrets["bmc-h-bait"] = fake.Account{User: "admin", Password: bmc.NewSecret("wrong")}
				})
				m.useOn("other-0", "h-bait")
				e, _, stop := start(t, w, store, nil)
				time.Sleep(2 * time.Second)
				_, passwords, end := sweeping(t, w, e)
				time.Sleep(2 * time.Minute)
				assert.False(t, passwords.were("192.0.2.10", "wrong"), "it would lock the account of the other")
				list := e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-bait"))
				require.Len(t, list, 1)
				assert.Equal(t, reason.DuplicateHost, list[0].Reason)
				require.NotEmpty(t, e.Runs("c"))
				assert.Equal(t, "n-1", e.Runs("c")[0].Target.Node)
				end()
				stop()
			})
		})
	}
}

// If both are known, both are refused, as before. // I9
func TestTwoKnownHostsAreBothRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.10:623" })
		m.useOn("other-0", "h-2")
		d := bmc.Device{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "192.0.2.10", Port: 623}}
		for _, host := range []string{"c/ns/h-1", "c/ns/h-2"} {
			_, err := state.SavePin(t.Context(), store, state.Pin{Host: host, Devices: d.Key(), Choice: d.Fingerprint(), Address: d.String()})
			require.NoError(t, err)
		}
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		for _, key := range []string{"ns/h-1", "ns/h-2"} {
			assert.Equal(t, reason.DuplicateHost, subjectOf(t, e, key).Withheld.Reason, key)
		}
		_, err := e.Enroll(t.Context(), byHand)
		refusedFor(t, err, reason.DuplicateHost)
		stop()
	})
}

// The same MAC address on two hosts is reported, and forbids nothing: status may hold old
// ones.
func TestSameMACsAreOnlyReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-1", func(h *policy.Host) { h.MACs = []string{"00-1B-21-00-00-01"} })
		m.set("h-2", func(h *policy.Host) { h.MACs = []string{"00:1b:21:00:00:01"} })
		m.useOn("other-0", "h-2")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
		s := subjectOf(t, e, "ns/h-1")
		assert.Contains(t, s.SameMACs, "c/ns/h-2")
		assert.Contains(t, s.SameMACs, "00:1b:21:00:00:01")
		assert.Empty(t, e.Forbidden(t.Context(), s))
		stop()
	})
}
