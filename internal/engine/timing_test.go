package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/power"
)

// Libraries and external programs get more time, and never less than is configured.
func TestTiming(t *testing.T) {
	const read = 5 * time.Second
	for driver, want := range map[bmc.Driver]bmc.Timing{
		bmc.DriverIPMI:       {ReadTimeout: read, SendTimeout: power.SendTimeout},
		bmc.DriverRedfish:    {ReadTimeout: read, SendTimeout: power.SendTimeout},
		bmc.DriverBMCLib:     {ReadTimeout: power.AgentReadTimeout, SendTimeout: power.AgentSendTimeout},
		bmc.DriverFenceAgent: {ReadTimeout: power.AgentReadTimeout, SendTimeout: power.AgentSendTimeout},
	} {
		assert.Equal(t, want, power.Timing(bmc.Device{Driver: driver}, read), driver)
	}
	assert.Equal(t, time.Minute, power.Timing(bmc.Device{Driver: bmc.DriverFenceAgent}, time.Minute).ReadTimeout)
}
