package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/reason"
)

// A refusal says what is in the way, and what would have to be where that says more.
func TestGateSaysWhy(t *testing.T) {
	assert.Equal(t, "hold: held by ann: disk", reason.Gate{Name: "hold", Value: "held by ann: disk", Threshold: "none"}.Why())
	assert.Equal(t, "confirmation: the BMC reads On", reason.Gate{Name: "confirmation", Value: "the BMC reads On"}.Why())
	assert.Equal(t, "inFlight: 5 (needed: below 5)", reason.Gate{Name: "inFlight", Value: "5", Threshold: "below 5"}.Why())
}
