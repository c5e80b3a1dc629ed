package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

// The report about one target has what other targets mean for it: the first of them takes the place
// that a budget has left, and the turn of the control plane. // I12
func TestActingOnOneTargetCountsTheOthers(t *testing.T) {
	broken := func(name string) *Node { // it is Ready, so its remediation makes one more unavailable
		return &Node{Name: name, UID: name, Conditions: []Condition{
			{Type: "Ready", Status: "True"}, {Type: "Broken", Status: "True", LastTransition: ledgerEpoch.Add(-time.Hour)},
		}}
	}
	master := func(name string) *Node {
		n := silentNode(name)
		n.ControlPlane = true
		return n
	}
	check := nodePolicy()
	check.Conditions = append(check.Conditions, UnhealthyCondition{Type: "Broken", Status: "True", Timeout: time.Minute})
	budget := Change{
		ID:    ObjectID{APIVersion: FencedAPI, Kind: DisruptionBudgetKind, Name: "b"},
		Value: &DisruptionBudget{Name: "b", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(1)},
	}
	for name, c := range map[string]struct {
		world []Change
		want  reason.Code
	}{
		"budget":        {[]Change{budget, put(broken("n-1")), put(broken("n-2"))}, reason.Budget},
		"control plane": {[]Change{put(master("n-1")), put(master("n-2"))}, reason.ControlPlaneBusy},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(Rules{})
			l.Apply(ledgerEpoch, append(c.world, put(check))...)
			all := l.Acting(ledgerEpoch)
			require.Len(t, all, 1)
			require.Len(t, all[0].Targets, 2)
			require.NotContains(t, all[0].Targets[0].Refusals, c.want)
			require.Contains(t, all[0].Targets[1].Refusals, c.want)
			for i, node := range []string{"n-1", "n-2"} {
				assert.Equal(t, all[0].Targets[i:i+1], l.ActingOn(check.ID(), node, ledgerEpoch))
			}
			assert.Empty(t, l.ActingOn(check.ID(), "n-3", ledgerEpoch))
			assert.Empty(t, l.ActingOn(CheckID{Name: "another"}, "n-1", ledgerEpoch))
		})
	}
}
