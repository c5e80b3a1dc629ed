// Package law checks properties that only some random worlds put to the test.
package law

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// rounds of rapid are enough for what one world in a hundred does.
const rounds = 20

// Check is rapid.Check, repeated until tested says that the property was put to the
// test; it fails if it never was.
func Check(t *testing.T, tested func() bool, property func(*rapid.T)) {
	t.Helper()
	for range rounds {
		rapid.Check(t, property)
		if tested() || t.Failed() {
			return
		}
	}
	require.True(t, tested(), "the law was never put to the test")
}
