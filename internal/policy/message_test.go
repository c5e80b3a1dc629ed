package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
)

// The message of a target is short, whatever conditions a check and an object have: each target of each check keeps one.
func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 2000)
	c := powerCheck("c")
	c.Conditions = []policy.UnhealthyCondition{{Type: long, Status: "True"}}
	s := sickWorld(time.Hour, c)
	s.Nodes["n-1"].Conditions = []policy.Condition{{Type: long, Status: "True", LastTransition: epoch.Add(-time.Hour)}}
	message := func() string {
		r := policy.Decide(s, epoch)
		require.Equal(t, policy.Unhealthy, r.Checks[0].Targets[0].Verdict)
		return r.Checks[0].Targets[0].Message
	}
	assert.LessOrEqual(t, len(message()), 1024)
	assert.True(t, strings.HasPrefix(message(), "üü"))

	capi := &s.Checks[0]
	capi.APIVersion, capi.ClusterName, capi.Conditions = policy.ClusterAPIV1Beta2, "c", nil
	m := &s.Machines[0]
	m.APIVersion, m.ClusterName = policy.ClusterAPIV1Beta2, "c"
	for i := range 256 {
		kind := fmt.Sprintf("Condition%d", i)
		capi.MachineConditions = append(capi.MachineConditions, policy.UnhealthyCondition{Type: kind, Status: "True"})
		m.Conditions = append(m.Conditions, policy.Condition{Type: kind, Status: "True", LastTransition: epoch.Add(-time.Hour)})
	}
	assert.Contains(t, message(), "Condition4 ")
	assert.NotContains(t, message(), "Condition5 ")
	capi.MachineConditions[0].Type, m.Conditions[0].Type = long, long
	assert.LessOrEqual(t, len(message()), 1024)
}
