package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

const otherUUID = "4c4c4544-0042-3510-8054-b4c04f4d9999"

// A Node's power was pinned at one BMC. A Machine that names another BareMetalHost, with
// another BMC, changes the address, and is not followed. // I10
func TestMachineThatNamesAnotherHostIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		require.Equal(t, "ipmi://192.0.2.10:623", pinOf(t, store, "c/ns/h-1").Address)
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://203.0.113.66" })
		m.drop("h-1")
		m.use("h-2")
		time.Sleep(5 * time.Second)
		s, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		require.Equal(t, "ns/h-2", s.BareMetalHost)
		reads := w.Reads()
		_, err = e.Fence(t.Context(), byHand)
		refusedFor(t, err, reason.AddressChanged)
		checkHealthy(t, e)
		assert.Empty(t, pinOf(t, store, "c/ns/h-2").Address, "no health check follows it")
		stop()
		e, _, stop = start(t, w, store, nil) // nor does a restart forget
		time.Sleep(5 * time.Second)
		_, err = e.Fence(t.Context(), byHand)
		refusedFor(t, err, reason.AddressChanged)
		assert.Equal(t, reads, w.Reads(), "the new address is not even asked")
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		_, err = e.Fence(t.Context(), dryRun(byHand))
		require.NoError(t, err)
		stop()
	})
}

// Another name for the same BMC is no change of address.
func TestRenamedHostWithTheSameBMCIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		m.drop("h-1")
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.10" })
		m.use("h-2")
		time.Sleep(5 * time.Second)
		checkHealthy(t, e)
		assert.Equal(t, hostUUID, pinOf(t, store, "c/ns/h-2").SystemUUID)
		stop()
	})
}

// If the Node is missing, only the pin says which host a BMC belongs to. The BMC of
// another Node's machine is not used for a Machine that names it. // I8, I10
func TestPinnedBMCIsNotUsedForAnotherNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.20" })
		m.use("h-2")
		w.RemoveNode()
		w.SetBMCUUID(otherUUID)
		_, err := state.SavePin(t.Context(), store, state.Pin{Host: "c/ns/h-2", Node: "n-2", SystemUUID: otherUUID, Address: "ipmi://192.0.2.20:623",
			Devices: bmc.Device{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Host: "192.0.2.20", Port: 623}}.Key()})
		require.NoError(t, err)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(5 * time.Second)
		_, err = e.Fence(t.Context(), byHand)
		refusedFor(t, err, reason.AddressChanged)
		assert.Zero(t, w.Reads())
		stop()
	})
}

// If a pin cannot be read, the earlier address of a machine is not known, and no new
// address is followed.
func TestUnreadablePinsForbidNewAddresses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		newMetal(w)
		_, err := store.Put(t.Context(), state.Record{Kind: state.KindPin, Key: "c/ns/h-9", Data: []byte("{")})
		require.NoError(t, err)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(5 * time.Second)
		_, err = e.Fence(t.Context(), byHand)
		refusedFor(t, err, reason.InvalidHost)
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		_, err = e.Fence(t.Context(), dryRun(byHand))
		require.NoError(t, err, "a person has vouched for this one")
		stop()
	})
}
