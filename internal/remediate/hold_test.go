package remediate

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// A hold has its owner switch the host off. One that is on record and was not set, as
// after a restart, waits like any Off until the BMC has shown whose it is. // I8
func TestHoldWaitsForTheIdentity(t *testing.T) {
	for identity, want := range map[Answer]Action{Yes: SetPowerLock, CannotTell: Nothing} {
		r, s := begin(PowerOff, 0)
		r.Target.BareMetalHost, s.PowerLock, s.Identity = "ns/h", No, identity
		s.Power.State, s.Proof, s.OffAccepted = bmc.On, proof(bmc.On), false
		_, got, _ := Next(r, s, noon)
		assert.Equal(t, want, got, "%v", identity)
	}
}
