// Package law checks properties in worlds that rapid draws. The seed is that of
// test/dice: the same in each run of go test, a fresh one in a soak.
package law

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/dice"
)

// The flags of rapid are registered by now, and not parsed yet: a seed on the
// command line or in RAPID_SEED is stronger. The seed repeats a failure, so no file
// of it is written that a later run would read.
func init() {
	set("rapid.seed", "RAPID_SEED", strconv.FormatUint(dice.Seed(), 10))
	set("rapid.nofailfile", "RAPID_NOFAILFILE", "true")
}

func set(name, env, value string) {
	if _, given := os.LookupEnv(env); given {
		return
	}
	if err := flag.Set(name, value); err != nil {
		panic(err) // rapid has no such flag any more
	}
}

// Check is rapid.Check with the seed of this process. All laws go through it.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if dice.Soak() {
		t.Logf("-rapid.seed=%s -rapid.checks=%s", flag.Lookup("rapid.seed").Value, flag.Lookup("rapid.checks").Value)
	}
	rapid.Check(t, property)
}

// CheckTested is Check of a property that not every world puts to the test; it fails if
// no world did. The property must draw its worlds so that one does, whatever the seed.
func CheckTested(t *testing.T, tested func() bool, property func(*rapid.T)) {
	t.Helper()
	Check(t, property)
	require.True(t, tested(), "no world put the law to the test: draw the case on purpose")
}
