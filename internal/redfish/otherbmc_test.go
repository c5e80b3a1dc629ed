package redfish_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/redfishsim"
)

// Two BMCs have one address, or it has gone to another: who was read is not who
// answers the command. A command goes to the machine that was read, or to none. // I8
func TestCommandIsNotGivenToAnotherBMC(t *testing.T) {
	sim, c := one(t)
	require.Equal(t, uuid1, bmctest.Read(t, c).Identity.UUID)
	sim.Quirks(func(q *redfishsim.Quirks) { q.UUID = uuid2 }) // from here on it is another BMC,
	sim.ExpireSessions()                                      // which does not know the session
	refusedAsStranger(t, sim, c)
	refusedAsStranger(t, sim, c) // which found an open session with it

	require.Equal(t, uuid2, bmctest.Read(t, c).Identity.UUID, "the next look shows it")
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err, "who asked knows by now whom")
	assert.False(t, sim.Power())
}

// refusedAsStranger sends an Off, which must go to nobody.
func refusedAsStranger(t *testing.T, sim *redfishsim.Server, c *redfish.Client) {
	t.Helper()
	err := sendOff(t, c)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
	assert.True(t, sim.Power(), "the other machine was switched off")
	assert.Empty(t, sim.System(0).Commands())
}

// sendOff gives the command again when the end of the connection was found only by
// writing to it.
func sendOff(t *testing.T, c *redfish.Client) error {
	t.Helper()
	_, err := c.Send(t.Context(), bmc.CommandOff)
	if e, ok := errors.AsType[*bmc.Error](err); ok && e.Sent == bmc.SentMaybe {
		_, err = c.Send(t.Context(), bmc.CommandOff)
	}
	return err
}

// Without a session nothing but the connection tells that it is still the same
// BMC: the password may be good at both.
func TestBasicCommandIsNotGivenToAnotherBMC(t *testing.T) {
	for name, faults := range map[string]redfishsim.Faults{
		"connections are kept":     {NoSessions: true},
		"each is announced to end": {NoSessions: true, CloseConnections: true},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			sim.Faults(func(f *redfishsim.Faults) { *f = faults })
			require.Equal(t, uuid1, bmctest.Read(t, c).Identity.UUID)
			sim.Quirks(func(q *redfishsim.Quirks) { q.UUID = uuid2 })
			sim.Restart(0) // which ends the connections
			refusedAsStranger(t, sim, c)
		})
	}
}

// A BMC that closed the connection is asked who it is, and then obeys.
func TestBasicCommandOverANewConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		faults redfishsim.Faults
		cut    bool
		looks  int // at the system, before the command
	}{
		"kept":                     {redfishsim.Faults{NoSessions: true}, false, 0},
		"cut":                      {redfishsim.Faults{NoSessions: true}, true, 1},
		"each is announced to end": {redfishsim.Faults{NoSessions: true, CloseConnections: true}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			sim.Faults(func(f *redfishsim.Faults) { *f = tc.faults })
			bmctest.Read(t, c)
			if tc.cut {
				sim.Restart(0) // which ends the connections
			}
			before := len(sim.Requests())
			require.NoError(t, sendOff(t, c))
			assert.False(t, sim.Power())
			assert.Len(t, sim.System(0).Commands(), 1)
			gets := 0
			for _, r := range sim.Requests()[before:] {
				if r.Method == http.MethodGet {
					gets++
				}
			}
			assert.Equal(t, tc.looks, gets)
		})
	}
}
