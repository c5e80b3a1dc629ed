package k8swatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Whichever check a run is of, all that cover its Machine may be acted on.
func TestLeadersOfAMachine(t *testing.T) { // I22
	deletes := policy.Check{Strategy: policy.DeleteMachines}
	cycles := policy.Check{Strategy: policy.PowerCycleHosts}
	ours := policy.Check{Strategy: policy.CreateRequests, Template: &policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate"}}
	theirs := policy.Check{Strategy: policy.CreateRequests, Template: &policy.Template{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1"}}
	for name, c := range map[string]struct {
		strategy remediate.Strategy
		checks   []policy.Check
		want     []string
	}{
		"a power cycle, no check":                 {remediate.PowerCycle, nil, []string{powerCycleLeader}},
		"a deletion, no check":                    {remediate.DeleteMachine, nil, []string{deletingLeader}},
		"a power cycle, a check that deletes":     {remediate.PowerCycle, []policy.Check{cycles, deletes}, []string{powerCycleLeader, deletingLeader}},
		"a power cycle, whose judge may live":     {remediate.PowerCycle, []policy.Check{cycles}, []string{powerCycleLeader}},
		"a deletion, a check that power-cycles":   {remediate.DeleteMachine, []policy.Check{cycles}, []string{powerCycleLeader, deletingLeader}},
		"a power cycle, a check that asks us":     {remediate.PowerCycle, []policy.Check{ours}, []string{powerCycleLeader}},
		"a power cycle, a check that asks others": {remediate.PowerCycle, []policy.Check{theirs}, []string{powerCycleLeader, deletingLeader}},
	} {
		assert.Equal(t, c.want, machineLeaders(c.strategy, c.checks), name)
	}
}

func TestWhoAsksUs(t *testing.T) {
	fence, other := policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate"}, policy.Template{APIVersion: "example.com/v1"}
	assert.True(t, isHandledByFenced(&policy.Check{Template: &fence}))
	assert.False(t, isHandledByFenced(&policy.Check{Escalation: []policy.Escalation{{Template: fence}, {Template: other}}}))
	assert.False(t, isHandledByFenced(&policy.Check{}), "a check without templates asks nobody")
}

func TestUnreadMachineHidesNoCheck(t *testing.T) {
	l := &looker{c: offline(), run: remediate.Run{Target: remediate.Target{Machine: "m", Namespace: "ns"}}}
	_, err := l.leader(t.Context())
	require.ErrorContains(t, err, "could not be read")
}

// TestListIsNotBehindTheView: what the view has seen, a list of rivals has seen.
func TestListIsNotBehindTheView(t *testing.T) {
	s := &side{stores: []*store{
		{source: source{kind: "MachineHealthCheck", group: "a.io", namespace: "ns"}, reached: 7},
		{source: source{kind: "MachineHealthCheck", group: "b.io"}, reached: 8},
		{source: source{kind: "Machine", group: "a.io"}, reached: 9},
		{source: source{kind: "MachineHealthCheck", group: "c.io"}},
	}}
	o := s.notOlder("MachineHealthCheck", "a.io", "ns")
	assert.Equal(t, "7", o.ResourceVersion)
	assert.Equal(t, metav1.ResourceVersionMatchNotOlderThan, o.ResourceVersionMatch)
	assert.Equal(t, "8", s.notOlder("MachineHealthCheck", "b.io", "ns").ResourceVersion, "a store of all namespaces")
	assert.Empty(t, s.notOlder("MachineHealthCheck", "a.io", "other").ResourceVersion, "nothing is known of it: as new as can be")
	assert.Empty(t, s.notOlder("MachineHealthCheck", "c.io", "ns").ResourceVersion, "there is no view yet")
}
