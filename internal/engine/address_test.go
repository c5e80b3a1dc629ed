package engine_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/state"
)

const otherUUID = "4c4c4544-0042-3510-8054-b4c04f4d9999"

// renamed is metal whose Machine may be told to use another BareMetalHost.
type renamed struct {
	*metal
	moved atomic.Bool
}

func (r *renamed) Changes() []policy.Change {
	list := r.metal.Changes()
	for i := range list {
		if x, ok := list[i].Value.(*policy.Machine); ok && x.Name == "m-1" && r.moved.Load() {
			x.Annotations = map[string]string{"metal3.io/BareMetalHost": "ns/h-2"}
		}
	}
	return list
}

func (r *renamed) options(o *engine.Options) { o.Clusters[0].Watch, o.Clusters[0].Kube = r, r }

// A Node's power was pinned at one BMC. A Machine that names another BareMetalHost,
// at another BMC, is a change of address like any other. // I10
func TestMachineThatNamesAnotherHostIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := &renamed{metal: newMetal(w)}
		w.ready = "True"
		e, _, stop := start(t, w, store, m.options)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		require.Equal(t, "ipmi://192.0.2.10:623", pinOf(t, store, "c/ns/h-1").Address)
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://203.0.113.66" })
		m.drop("h-1")
		m.moved.Store(true)
		time.Sleep(5 * time.Second)
		s, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		require.Equal(t, "ns/h-2", s.BareMetalHost)
		reads := w.reads
		_, err = e.Fence(t.Context(), byHand)
		refusedFor(t, err, policy.AddressChanged)
		checkHealthy(t, e)
		assert.Empty(t, pinOf(t, store, "c/ns/h-2").Address, "no health check follows it")
		stop()
		e, _, stop = start(t, w, store, m.options) // nor does a restart forget
		time.Sleep(5 * time.Second)
		_, err = e.Fence(t.Context(), byHand)
		refusedFor(t, err, policy.AddressChanged)
		assert.Equal(t, reads, w.reads, "the new address is not even asked")
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		o := byHand
		o.DryRun = true
		_, err = e.Fence(t.Context(), o)
		require.NoError(t, err)
		stop()
	})
}

// Another name for the very BMC is none.
func TestHostThatIsOnlyCalledOtherwiseIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := &renamed{metal: newMetal(w)}
		w.ready = "True"
		e, _, stop := start(t, w, store, m.options)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		m.drop("h-1")
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.10" })
		m.moved.Store(true)
		time.Sleep(5 * time.Second)
		checkHealthy(t, e)
		assert.Equal(t, hostUUID, pinOf(t, store, "c/ns/h-2").SystemUUID)
		stop()
	})
}

// Without a Node only the pin says whose a BMC is: one of another Node's machine
// does not speak for the Machine that is made to name it. // I8, I10
func TestHostOfAnotherNodeIsNotThisOnes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := &renamed{metal: newMetal(w)}
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.20" })
		m.moved.Store(true)
		w.exists, w.bmcUUID = false, otherUUID
		_, err := state.SavePin(t.Context(), store, state.Pin{Host: "c/ns/h-2", Node: "n-2", SystemUUID: otherUUID, Address: "ipmi://192.0.2.20:623",
			Devices: bmc.Device{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Host: "192.0.2.20", Port: 623}}.Key()})
		require.NoError(t, err)
		e, _, stop := start(t, w, store, m.options)
		time.Sleep(5 * time.Second)
		_, err = e.Fence(t.Context(), byHand)
		refusedFor(t, err, policy.AddressChanged)
		assert.Zero(t, w.reads)
		stop()
	})
}

// Where pins cannot all be read, nobody knows where a machine was.
func TestPinsThatCannotBeReadStopFollowing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		_, err := store.Put(t.Context(), state.Record{Kind: state.KindPin, Key: "c/ns/h-9", Data: []byte("{")})
		require.NoError(t, err)
		e, _, stop := start(t, w, store, m.options)
		time.Sleep(5 * time.Second)
		_, err = e.Fence(t.Context(), byHand)
		refusedFor(t, err, policy.InvalidHost)
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		o := byHand
		o.DryRun = true
		_, err = e.Fence(t.Context(), o)
		require.NoError(t, err, "a person has vouched for this one")
		stop()
	})
}
