package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
)

// Libraries and programs of others have more time, and never less than is
// configured.
func TestTiming(t *testing.T) {
	const read = 5 * time.Second
	for driver, want := range map[bmc.Driver]bmc.Timing{
		bmc.DriverIPMI:       {ReadTimeout: read, SendTimeout: engine.SendTimeout},
		bmc.DriverRedfish:    {ReadTimeout: read, SendTimeout: engine.SendTimeout},
		bmc.DriverBMCLib:     {ReadTimeout: engine.AgentReadTimeout, SendTimeout: engine.AgentSendTimeout},
		bmc.DriverFenceAgent: {ReadTimeout: engine.AgentReadTimeout, SendTimeout: engine.AgentSendTimeout},
	} {
		assert.Equal(t, want, engine.Timing(bmc.Device{Driver: driver}, read), driver)
	}
	assert.Equal(t, time.Minute, engine.Timing(bmc.Device{Driver: bmc.DriverFenceAgent}, time.Minute).ReadTimeout)
}
