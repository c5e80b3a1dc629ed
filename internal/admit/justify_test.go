package admit

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/remediate"
)

// Only the host's own, identified BMC shortens a wait.
func TestOnlyTheOwnBMCShortensAWait(t *testing.T) {
	off := remediate.Observation{ProofKind: remediate.ProofBMC, Power: bmc.Reading{State: bmc.Off}, Identity: remediate.Yes}
	assert.True(t, ownBMCReadsOff(off))
	for name, spoil := range map[string]func(*remediate.Observation){
		"a further level": func(s *remediate.Observation) { s.Level = 1 },
		"an outlet":       func(s *remediate.Observation) { s.ProofKind = remediate.ProofDevice },
		"On":              func(s *remediate.Observation) { s.Power.State = bmc.On },
		"a stranger":      func(s *remediate.Observation) { s.Identity = remediate.CannotTell },
	} {
		s := off
		spoil(&s)
		assert.False(t, ownBMCReadsOff(s), name)
	}
}

func TestWithDetail(t *testing.T) {
	assert.Equal(t, "not synced yet", withDetail("not synced yet", ""))
	assert.Equal(t, "not synced yet; refused", withDetail("not synced yet", "refused"))
}
