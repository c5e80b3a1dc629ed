package law

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/dice"
)

// TestSameWorlds: the laws of one process draw the same worlds, and outside a soak
// those of every process.
func TestSameWorlds(t *testing.T) {
	worlds := func() (list []int) {
		Check(t, func(t *rapid.T) { list = append(list, rapid.Int().Draw(t, "world")) })
		return list
	}
	first := worlds()
	assert.Equal(t, first, worlds())
	assert.Greater(t, len(first), 1)
	if _, given := os.LookupEnv("RAPID_SEED"); !given {
		assert.Equal(t, strconv.FormatUint(dice.Seed(), 10), flag.Lookup("rapid.seed").Value.String(), "on the command line another may be given")
	}
	assert.Equal(t, "true", flag.Lookup("rapid.nofailfile").Value.String(), "a later run reads no file of a failure")
}
