package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/power"
)

// hungOutlet is one whose agent says nothing for as long as it may.
type hungOutlet struct{ deadOutlet }

func (hungOutlet) Read(ctx context.Context) (bmc.Reading, error) {
	select {
	case <-ctx.Done():
	case <-time.After(power.AgentReadTimeout):
	}
	return bmc.Reading{}, noAnswer()
}

// Agents that take all of their time leave enough time to read the backup of the Node: a
// confirmation that nothing contradicts counts in the end. // I26
func TestHungAgentsDoNotBlockAConfirmation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		withOutlet(w)
		w.ChangeEntry(func(h *bmc.Host) {
			h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{{
				Driver: bmc.DriverFenceAgent, Agent: "fence_eaton_snmp", Endpoint: bmc.Endpoint{Host: "192.0.2.201"}, Parameters: map[string]string{"plug": "3"}}}})
		})
		w.dead()
		e, _, stop := start(t, w, store, opening(w.bmc(), hungOutlet{}))
		time.Sleep(time.Second)
		_, err := e.ConfirmOff(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(30 * time.Minute)
		assert.Equal(t, "ConfirmedOff", string(only(t, e).Reason), only(t, e).Note)
		assert.Equal(t, 1, w.Isolations())
		stop()
	})
}
