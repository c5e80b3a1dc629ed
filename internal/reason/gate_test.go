package reason_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/reason"
)

// A code that is shown beside its sentence is not told twice, wherever in an error it is.
func TestSentence(t *testing.T) {
	refused := &reason.Refusal{Reason: reason.SecretMissing, Message: "Secret ns/s does not exist"}
	wrapped := fmt.Errorf("open power level 2: %w", refused)
	assert.EqualError(t, wrapped, "open power level 2: SecretMissing: Secret ns/s does not exist")
	assert.Equal(t, "open power level 2: Secret ns/s does not exist", reason.Sentence(wrapped))
	assert.Equal(t, "Secret ns/s does not exist", reason.Sentence(refused))
	assert.Equal(t, "x", reason.Sentence(errors.New("x")))

	found, ok := reason.AsRefusal(wrapped)
	assert.True(t, ok)
	assert.Equal(t, refused, found)
	_, ok = reason.AsRefusal(errors.New("x"))
	assert.False(t, ok)
}

func TestJoin(t *testing.T) {
	assert.Equal(t, "ShortCircuit, Budget", reason.Join([]reason.Code{reason.ShortCircuit, reason.Budget}))
}

func TestGate(t *testing.T) {
	closed := reason.NewGate("zone", false, reason.ZoneInFlight, "1 in zone a", "below 1", "guards.maxInFlightPerZone")
	assert.Equal(t, "zone: 1 in zone a (needed: below 1)", closed.Why())
	assert.Equal(t, &reason.Refusal{Reason: reason.ZoneInFlight, Message: closed.Why()}, reason.RefusalOf(closed))
	assert.Empty(t, reason.NewGate("zone", true, reason.ZoneInFlight, "0", "below 1", "x").Reason, "a gate that holds has no reason")
	assert.Equal(t, reason.Gate{Name: "pause", Pass: true, Value: "none", Threshold: "none", Source: "state"}, reason.NoneOf("pause", reason.Paused, "", "state"))
}

// A refusal says what is in the way, and what would have to be where that says more.
func TestGateSaysWhy(t *testing.T) {
	assert.Equal(t, "hold: held by ann: disk", reason.Gate{Name: "hold", Value: "held by ann: disk", Threshold: "none"}.Why())
	assert.Equal(t, "confirmation: the BMC reads On", reason.Gate{Name: "confirmation", Value: "the BMC reads On"}.Why())
	assert.Equal(t, "inFlight: 5 (needed: below 5)", reason.Gate{Name: "inFlight", Value: "5", Threshold: "below 5"}.Why())
}
