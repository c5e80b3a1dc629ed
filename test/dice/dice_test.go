package dice

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/test/must"
)

func TestSeed(t *testing.T) {
	for _, row := range []struct {
		name, given string
		soak        bool
		want        uint64
	}{
		{"go test", "", false, fixed},
		{"a seed again", "17", false, 17},
		{"a seed of a soak again", "17", true, 17},
	} {
		got := must.Do(choose(row.given, row.soak))(t)
		assert.Equal(t, row.want, got, row.name)
	}
	first := must.Do(choose("", true))(t)
	second := must.Do(choose("", true))(t)
	assert.NotEqual(t, first, second, "fresh") // the same once in 2^48
	_, err := choose("x", false)
	assert.ErrorContains(t, err, "FENCED_SEED")
}

func TestNewDependsOnItsArguments(t *testing.T) {
	first := New(t, 1).Uint64()
	assert.Equal(t, first, New(t, 1).Uint64())
	assert.NotEqual(t, first, New(t, 2).Uint64())
	if !Soak() {
		assert.Equal(t, uint64(0xb4c9df15181874ea), first, "the same on every machine")
	}
}
