package write

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
)

// The reason of the condition Disabled does not depend on the words of the message.
func TestReasonOfADisabledNodeCheck(t *testing.T) {
	r := policy.CheckReport{State: policy.StateDisabled, Message: "MachineHealthCheck is what its template is called"}
	assert.Equal(t, "RemediationTemplateInvalid", disabledCondition(&r).reason)
	r.Conflicting, r.Message = true, "another check may remediate the same Nodes"
	assert.Equal(t, "ConflictingMachineHealthCheckDetected", disabledCondition(&r).reason)
}
