package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, _, stop := start(t, w, store, eachMachine(func(_ *policy.Change, m *policy.Machine) { change(m) }))
				time.Sleep(5 * time.Minute)
				assert.Empty(t, e.Runs("c"))
				assert.False(t, gate(t, e, reason.InvalidHost).Pass)
				_, err := e.Fence(t.Context(), byHand)
				var refusal *reason.Refusal
				require.ErrorAs(t, err, &refusal, "people are bound, too")
				assert.Equal(t, reason.InvalidHost, refusal.Reason)
				assert.Zero(t, w.Reads(), "its BMC is not even asked")
				stop()
			})
		})
	}
}

// The providerID of another infrastructure names no BareMetalHost.
func TestOtherProviderIDIsFencedByHostsD(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, eachMachine(func(_ *policy.Change, m *policy.Machine) { m.ProviderID = "k3s://n-1" }))
		time.Sleep(65 * time.Second)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}
