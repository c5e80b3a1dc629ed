package hosts

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// A message that is shown beside its reason code does not repeat the code.
func TestSentence(t *testing.T) {
	lost := &reason.Refusal{Reason: reason.SecretMissing, Message: "Secret ns/s does not exist"}
	h := bmc.Host{Source: "BareMetalHost ns/h", Levels: []bmc.Level{{Devices: []bmc.Device{{Secret: "ns/s"}}}}}
	h = withSecrets(t.Context(), h, func(context.Context, string) (string, bmc.Secret, error) { return "", bmc.Secret{}, lost })
	err := h.Levels[0].Devices[0].Unusable
	assert.EqualError(t, err, "SecretMissing: BareMetalHost ns/h: Secret ns/s does not exist")
	assert.Equal(t, "BareMetalHost ns/h: Secret ns/s does not exist", reason.Sentence(err))
	assert.Equal(t, "x", reason.Sentence(errors.New("x")))
	assert.Equal(t, "level 2: Secret ns/s does not exist", reason.Sentence(fmt.Errorf("level 2: %w", lost)))
	assert.Equal(t, "Secret ns/s does not exist\nx", reason.Sentence(errors.Join(lost, errors.New("x"))))
}
