package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
)

// by gives n-1's BMC another driver.
func (w *world) by(d bmc.Driver) {
	w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].Driver = d })
}

// ipmitool and most agents cannot distinguish a wrong password from a dead BMC. So they
// are not probed every 30 s while the Node is unhealthy.
func TestProbesOfLowerAssuranceBackOff(t *testing.T) {
	for driver, most := range map[bmc.Driver]int{bmc.DriverBMCLib: 12, bmc.DriverIPMI: 1000} {
		t.Run(string(driver), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.by(driver)
				e, stop := enrolled(t, w, store, nil)
				w.FailReads(noAnswer())
				before := w.Reads()
				time.Sleep(61*time.Second + 32*time.Second)
				assert.Equal(t, 2, w.Reads()-before, "a second one soon")
				time.Sleep(time.Hour)
				n := w.Reads() - before
				assert.LessOrEqual(t, n, most)
				assert.Greater(t, n, most/20)
				gate(t, e, "BMCUnreachable")
				if driver == bmc.DriverIPMI {
					stop()
					return
				}
				_, err := e.Fence(t.Context(), byHand)
				refusedFor(t, err, "BMCUnreachable")
				assert.Greater(t, w.Reads()-before, n, "a person has it asked")

				w.FailReads(nil)
				time.Sleep(11 * time.Minute)
				require.Len(t, e.Runs("c"), 1)
				stop()
			})
		})
	}
}

// If the health check finds that the BMC works again, the next probe does not wait.
func TestHealthCheckEndsTheProbeBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.by(bmc.DriverBMCLib)
		e, stop := enrolled(t, w, store, nil)
		w.FailReads(noAnswer())
		time.Sleep(40 * time.Minute)
		w.FailReads(nil)
		s, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		e.Checked(t.Context(), hosts.Checked{Subject: s, Reading: bmc.Reading{State: bmc.On, At: time.Now()}})
		time.Sleep(32 * time.Second)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}
