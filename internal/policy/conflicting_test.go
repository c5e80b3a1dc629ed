package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/policy"
)

// A report says whether a NodeHealthCheck is disabled by MachineHealthChecks or by itself.
func TestReportOfAConflict(t *testing.T) {
	own := nodeCheck("c")
	own.Disabled = "MachineHealthCheck is no template"
	of := func(s policy.Snapshot) policy.CheckReport {
		for _, r := range policy.Decide(s, epoch).Checks {
			if r.Kind == policy.NodeHealthCheckKind {
				return r
			}
		}
		return policy.CheckReport{}
	}
	r := of(policy.Snapshot{Checks: []policy.Check{own}})
	assert.Equal(t, policy.StateDisabled, r.State)
	assert.False(t, r.Conflicting)
	machines := policy.Check{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", Selector: labels.Everything(),
		Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}}
	r = of(policy.Snapshot{Checks: []policy.Check{nodeCheck("c"), machines}})
	assert.Equal(t, policy.StateDisabled, r.State)
	assert.True(t, r.Conflicting)
}
