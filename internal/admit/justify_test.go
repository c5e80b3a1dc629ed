package admit

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/remediate"
)

// Only the host's own BMC, identified, shortens a wait.
func TestEvident(t *testing.T) {
	off := remediate.Observation{ProofKind: remediate.ProofBMC, Power: bmc.Reading{State: bmc.Off}, Identity: remediate.Yes}
	assert.True(t, evident(off))
	for name, spoil := range map[string]func(*remediate.Observation){
		"a further level": func(s *remediate.Observation) { s.Level = 1 },
		"an outlet":       func(s *remediate.Observation) { s.ProofKind = remediate.ProofDevice },
		"On":              func(s *remediate.Observation) { s.Power.State = bmc.On },
		"a stranger":      func(s *remediate.Observation) { s.Identity = remediate.CannotTell },
	} {
		s := off
		spoil(&s)
		assert.False(t, evident(s), name)
	}
}

func TestJoined(t *testing.T) {
	assert.Equal(t, "not synced yet", joined("not synced yet", ""))
	assert.Equal(t, "not synced yet; refused", joined("not synced yet", "refused"))
}
