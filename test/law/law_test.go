package law

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/dice"
)

// TestSameWorlds: the laws of one process draw the same worlds, and outside a soak
// those of every process.
func TestSameWorlds(t *testing.T) {
	worlds := func() (drawn []int) {
		Check(t, func(t *rapid.T) { drawn = append(drawn, rapid.Int().Draw(t, "world")) })
		return drawn
	}
	first := worlds()
	assert.Equal(t, first, worlds())
	assert.Greater(t, len(first), 1)
	if !dice.Soak() {
		assert.Equal(t, rapid.Int().Example(0), rapid.Int().Example(0))
	}
}
