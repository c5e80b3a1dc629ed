package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
)

// A reason that is told beside its sentence is not told twice.
func TestSentence(t *testing.T) {
	lost := &Refusal{Reason: policy.SecretMissing, Message: "Secret ns/s does not exist"}
	h := bmc.Host{Source: "BareMetalHost ns/h", Levels: []bmc.Level{{Devices: []bmc.Device{{Secret: "ns/s"}}}}}
	h = withSecrets(t.Context(), h, func(context.Context, string) (string, bmc.Secret, error) { return "", bmc.Secret{}, lost })
	err := h.Levels[0].Devices[0].Unusable
	assert.EqualError(t, err, "SecretMissing: BareMetalHost ns/h: Secret ns/s does not exist")
	assert.Equal(t, "BareMetalHost ns/h: Secret ns/s does not exist", Sentence(err))
	assert.Equal(t, "x", Sentence(errors.New("x")))
	assert.Equal(t, "level 2: Secret ns/s does not exist", Sentence(fmt.Errorf("level 2: %w", lost)))
	assert.Equal(t, "Secret ns/s does not exist\nx", Sentence(errors.Join(lost, errors.New("x"))))
}

func TestJoined(t *testing.T) {
	assert.Equal(t, "not synced yet", joined("not synced yet", ""))
	assert.Equal(t, "not synced yet; refused", joined("not synced yet", "refused"))
}
