package bmclib

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/redfishsim"
)

const otherUUID = "4c4c4544-0042-4810-8056-b4c04f4d3232"

// Two BMCs have one address, or it has gone to another: who was read is not who
// answers the command. A command goes to the machine that was read, or to none. // I8
func TestCommandIsNotGivenToAnotherBMC(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	c := open(t, d)
	require.Equal(t, uuid, bmctest.Read(t, c).Identity.UUID)
	sim.Quirks(func(q *redfishsim.Quirks) { q.UUID = otherUUID }) // from here on it is another BMC,
	sim.ExpireSessions()                                          // which does not know the session
	for range 2 {
		_, err := c.Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
	}
	assert.True(t, sim.Power(), "the other machine was switched off")

	require.Equal(t, otherUUID, bmctest.Read(t, c).Identity.UUID, "the next look shows it")
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err, "who asked knows by now whom")
	assert.False(t, sim.Power())
}

// The machine may change between our look and bmclib's, with the login in between.
func TestGuardHoldsTheCommandToTheMachine(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	c := open(t, d)
	who := bmctest.Read(t, c).Identity
	sim.Quirks(func(q *redfishsim.Quirks) { q.UUID = otherUUID })
	sim.ExpireSessions()
	err := c.do(t.Context(), &who, func(p provider) error {
		_, err := p.PowerSet(t.Context(), "off")
		return err
	})
	assert.Equal(t, bmc.KindIdentity, kindOf(err), "%v", err)
	assert.Zero(t, sim.Count(http.MethodPost, sim.System(0).URI()))
	assert.True(t, sim.Power())
}
